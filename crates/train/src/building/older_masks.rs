//! Masks of older versions of transformers, which are simulated only: training does what the newest version does.

use crate::job::Attention;
use crate::tensor::Tensor;

/// What such a mask is made from.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "the simulation reads it")]
pub(crate) struct OlderMask<'a> {
    pub attention: Attention,
    pub inputs_embeds: &'a Tensor,
    pub attention_mask: Option<&'a Tensor>,
    pub seen: u64,
    pub window: Option<u64>,
}

pub(crate) fn update_causal_mask(inputs: OlderMask<'_>) -> Option<Tensor> {
    inputs.inputs_embeds.context().fail_unsimulated(&[], || "masks of older versions of transformers".to_owned());
    None
}

pub(crate) fn tabled_mask(_table: &Tensor, inputs: OlderMask<'_>, _tokens: u64) -> Option<Tensor> {
    update_causal_mask(inputs)
}

pub(crate) fn counted_positions(attention_mask: &Tensor) -> Tensor {
    attention_mask.cumsum()
}
