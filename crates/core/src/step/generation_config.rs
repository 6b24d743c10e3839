//! What `generate` reads of a `GenerationConfig`, and the special tokens that it puts on the device.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{ReduceKind, full};
use crate::tensor::{Context, Tensor};

use super::sampling::Sampling;

/// What `generate` reads of its `GenerationConfig`. Every row runs to its full length.
#[derive(Clone, Copy)]
pub(super) struct GenerationConfig {
    pub max_new_tokens: u64,
    /// `do_sample` and its settings; `None` takes the likeliest token.
    pub sampling: Option<Sampling>,
    pub special_tokens: SpecialTokens,
    /// Whether keys and values are kept; without, every token runs all tokens before it again.
    pub use_cache: bool,
    /// `output_scores`: those of every token are kept.
    pub output_scores: bool,
}

/// The special tokens that a config names.
#[derive(Clone, Copy)]
pub(super) struct SpecialTokens {
    /// `bos_token_id`
    pub begin: bool,
    /// `eos_token_id`: rows that have ended go on with padding.
    pub end: bool,
    /// `pad_token_id`; without one the end token pads.
    pub pad: bool,
}

/// Special tokens on the device.
pub(super) struct SpecialTokenTensors {
    _begin: Option<Tensor>,
    pub end: Option<Tensor>,
    pub pad: Option<Tensor>,
}

impl SpecialTokens {
    /// `_prepare_special_tokens`; the tests at the end ask whether the padding ends a row, and whether ids are negative.
    pub(super) fn prepare(self, context: &Rc<Context>) -> SpecialTokenTensors {
        let token = |wanted: bool| wanted.then(|| full(context, "_to_copy.default", &[], DType::Int64));
        let begin = token(self.begin);
        let end = token(self.end).map(|end| end.unsqueeze(0));
        let pad = token(self.pad).or_else(|| end.as_ref().map(|end| end.squeeze(0)));
        if let (Some(end), Some(pad)) = (&end, &pad) {
            any(&end.is_in(&pad.unsqueeze(0)));
            any(&end.map("lt.Scalar", DType::Bool));
        }
        SpecialTokenTensors { _begin: begin, end, pad }
    }
}

pub(super) fn any(conditions: &Tensor) -> Tensor {
    conditions.reduce_all("any.default", ReduceKind::Any, DType::Bool)
}
