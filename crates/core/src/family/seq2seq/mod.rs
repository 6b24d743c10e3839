//! Encoder-decoders: a model reads rows and writes others, which their labels are; a file a family, which is only simulated.

mod attention;
mod bart;
mod t5;
mod targets;
mod whisper;

use crate::model::family::Family;
pub(super) use t5::T5Encoder;

/// All of them.
pub(super) const FAMILIES: &[Family] = &[bart::FAMILY, t5::FAMILY, whisper::FAMILY];
