//! Training of a denoiser as diffusers' examples do it, on latents and embeddings of prompts.

use super::{Passes, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check, keys};

/// What diffusion training needs to be told beside the denoiser. `seq_len` counts the tokens of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffusionSpec {
    /// Height and width of images in pixels; latents have an eighth of each.
    pub resolution: u64,
    /// Whether latents were computed before, so that no VAE is on the device.
    pub cache_latents: bool,
    /// The same of prompts' embeddings and text encoders.
    pub cache_text_embeddings: bool,
}

impl TaskFacts for DiffusionSpec {
    fn name(&self) -> TaskName {
        TaskName::Diffusion
    }

    fn program(&self) -> &'static str {
        "diffusers' examples"
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::diffusion::check_diffusion(job, self)
    }

    fn unread_keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (keys::ZERO_GRAD_SET_TO_NONE, "accelerate's optimizer frees its gradients"),
            (keys::TRAIN_MODE, "they call train()"),
            (keys::USE_CACHE, "a denoiser generates nothing token by token"),
            (keys::KEEP_OUTPUTS, "their loop keeps its prediction in any case"),
            (keys::LOGITS_TO_KEEP, "a denoiser has no logits"),
            (keys::LOSS, "their loss is of the prediction"),
        ]
    }

    fn passes(&self) -> Passes {
        Passes::Accumulated
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}
