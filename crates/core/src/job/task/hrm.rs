//! One segment of the hierarchical reasoning model's adaptive computation (HRM's pretrain.py).

use super::{Passes, Spreading, TaskFacts, TaskName};
use crate::gpu::Gpu;
use crate::job::keys;
use crate::job::{JobError, JobSpec, check};

pub(super) struct Hrm;

impl TaskFacts for Hrm {
    fn name(&self) -> TaskName {
        TaskName::Hrm
    }

    fn program(&self) -> &'static str {
        "HRM"
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::is_hrm(job)
    }

    fn unread_keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (keys::PRECISION, "weights are fp32, cast to its `forward_dtype` where used"),
            (keys::ATTENTION, "it calls flash-attn"),
            (keys::GRADIENT_ACCUMULATION_STEPS, "a step is one segment"),
            (keys::GRADIENT_CHECKPOINTING, "it recomputes nothing"),
            (keys::CLIP_GRAD_NORM, "it does not clip"),
            (keys::ZERO_GRAD_SET_TO_NONE, "it frees its gradients"),
            (keys::TRAIN_MODE, "only its training step is simulated"),
            (keys::DROPOUT, "it has no dropout"),
            (keys::TIE_WORD_EMBEDDINGS, "its head has a weight of its own"),
            (keys::USE_CACHE, "it generates nothing"),
            (keys::KEEP_OUTPUTS, "its loop keeps loss, carry and metrics"),
            (keys::LOGITS_TO_KEEP, "it answers at every position"),
            (keys::LOSS, "its loss is the config's `loss_type`"),
            ("lora", "it is trained whole"),
        ]
    }

    fn passes(&self) -> Passes {
        Passes::One("a segment trains on its rows in one pass: fewer rows are another effective batch")
    }

    fn spreading(&self) -> Spreading {
        Spreading::OwnRanks
    }

    fn own_argument(&self, key: &str, value: u64, ranks: u64) -> Option<String> {
        (key == keys::MICRO_BATCH_SIZE).then(|| format!("global_batch_size={}", value.saturating_mul(ranks)))
    }

    fn remarks(&self, gpu: &Gpu) -> Vec<(&'static str, &'static str)> {
        // `pretrain.py` compiles the model unless `DISABLE_COMPILE` is set.
        let eager = "HRM compiles its model by default; the figures are of eager mode (DISABLE_COMPILE=1), which makes \
                     temporaries that a compiled graph fuses away: take them as an upper bound";
        // layers.py prefers flash-attn 3 (Hopper) where it is installed.
        let hopper = "attention is flash-attn 2's; flash-attn 3, which HRM prefers on this GPU, was not measured";
        let hopper = (gpu.compute_capability.0 == 9).then_some(("flash_attn_3", hopper));
        std::iter::once(("hrm_eager", eager)).chain(hopper).collect()
    }
}
