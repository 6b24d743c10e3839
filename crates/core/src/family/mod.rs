//! Model families, a file each; a file reads like the modeling file of transformers 5.17 that it mirrors.
//!
//! One more family is one file here and one line in [`FAMILIES`].

mod bert;
mod bounds;
mod decoder;
mod gemma2;
mod gemma3;
mod generic;
mod gpt2;
mod llama;
mod mistral;
mod phi3;
mod qwen2;

use std::rc::Rc;

use crate::nn::{BuildError, Builder, HeadCall, KvCache};
use crate::spec::{Attention, CheckpointPolicy, ModelSpec};
use crate::tensor::Tensor;

/// What a family does with its config.
pub(crate) type Build = fn(&ModelSpec, &Builder, &RunOptions) -> Result<Box<dyn Model>, BuildError>;

/// A family: the `model_type`s it accepts and how it is built.
pub(crate) struct Family {
    /// Hugging Face's `model_type`s.
    pub model_types: &'static [&'static str],
    /// Whether its config class sets `bos_token_id` by default.
    pub has_begin_token: bool,
    /// Builds the model on the device.
    pub build: Build,
}

/// All families.
pub(crate) const FAMILIES: &[Family] = &[
    bert::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
    gpt2::FAMILY,
    llama::FAMILY,
    mistral::FAMILY,
    phi3::FAMILY,
    qwen2::FAMILY,
    generic::FAMILY,
];

/// How the model is run, beside its config.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOptions {
    pub attention: Attention,
    pub checkpointing: CheckpointPolicy,
    pub training: bool,
    /// Only adapters are trained.
    pub frozen_base: bool,
}

impl RunOptions {
    /// A dropout probability as it acts: 0 outside training.
    pub(crate) fn active(&self, probability: f64) -> f64 {
        if self.training { probability } else { 0.0 }
    }

    /// What `enable_input_require_grads` does to the input embeddings: checkpointed layers of a frozen model need an
    /// input that requires grad.
    pub(crate) fn require_input_grads(&self, inputs_embeds: Tensor) -> Tensor {
        if self.frozen_base && self.checkpoints_layers() { inputs_embeds.into_parameter() } else { inputs_embeds }
    }

    /// Whether layers are recomputed in backward.
    pub(crate) fn checkpoints_layers(&self) -> bool {
        self.training && self.checkpointing == CheckpointPolicy::EveryLayer
    }
}

/// The arguments of a forward call.
pub(crate) struct ForwardCall<'a> {
    pub input_ids: &'a Tensor,
    pub attention_mask: Option<&'a Tensor>,
    pub position_ids: Option<&'a Tensor>,
    pub labels: Option<&'a Tensor>,
    pub cache: Option<Rc<KvCache>>,
    pub logits_to_keep: Option<u64>,
    /// Liger's loss in place of full logits.
    pub fused_loss: bool,
}

impl ForwardCall<'_> {
    /// What of it the head reads.
    fn head(&self) -> HeadCall<'_> {
        HeadCall { labels: self.labels, logits_to_keep: self.logits_to_keep, fused_loss: self.fused_loss }
    }
}

/// What a forward call returns.
pub(crate) struct ModelOutput {
    pub loss: Option<Tensor>,
    /// `None` where a fused loss makes no logits.
    pub logits: Option<Tensor>,
    pub cache: Option<Rc<KvCache>>,
}

/// A model on the device.
pub(crate) trait Model {
    fn forward(&self, call: &ForwardCall) -> ModelOutput;

    /// The cache that `DynamicCache(config)` is for this model.
    fn new_cache(&self) -> Rc<KvCache> {
        Rc::default()
    }
}

/// The family of a `model_type`.
///
/// # Errors
/// When no family accepts it; the error lists those that are known.
pub(crate) fn find(model_type: &str) -> Result<&'static Family, BuildError> {
    FAMILIES.iter().find(|family| family.model_types.contains(&model_type)).ok_or_else(|| {
        BuildError::UnknownModelType { model_type: model_type.to_owned(), known: known_model_types().join(", ") }
    })
}

/// Every `model_type` that a family accepts.
pub fn known_model_types() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| family.model_types.iter().copied()).collect()
}
