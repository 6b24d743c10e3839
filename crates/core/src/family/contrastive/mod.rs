//! Models of images and their texts, whose rows meet in a batch (`return_loss=True`); a file a family, which is only simulated.

mod activations;
mod clip;
mod pooling;
mod siglip;
mod text;

use crate::dtype::DType;
pub(super) use activations::bound_pairs;

use crate::model::family::{Family, ForwardCall};
use crate::op::empty;
use crate::tensor::Tensor;

/// All of them.
pub(super) const FAMILIES: &[Family] = &[clip::FAMILY, siglip::FAMILY];

/// What a tower returns.
struct Pooled {
    last_hidden_state: Tensor,
    pooler_output: Tensor,
}

/// The pixels of a batch, of which every pair has some.
fn pixel_values(call: &ForwardCall) -> Tensor {
    let pixels = call.images.and_then(|images| images.pixel_values.clone());
    pixels.unwrap_or_else(|| empty(call.input_ids.context(), &[0, 0, 0, 0], DType::Float32))
}
