//! [`MaskInputs`]: what attention masks are made from, by any version of transformers.

use crate::job::{Attention, ModelingFile};
use crate::tensor::Tensor;

use super::cache::KvCache;

/// What masks are made from.
#[derive(Clone, Copy)]
pub(crate) struct MaskInputs<'a> {
    pub attention: Attention,
    pub file: ModelingFile,
    pub inputs_embeds: &'a Tensor,
    pub attention_mask: Option<&'a Tensor>,
    pub cache: Option<&'a KvCache>,
    pub position_ids: Option<&'a Tensor>,
}
