//! One segment of the hierarchical reasoning model's adaptive computation (HRM's pretrain.py).

use super::{Passes, Spreading, TaskFacts, TaskName};
use crate::gpu::Gpu;
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
            ("precision", "weights are fp32, cast to its `forward_dtype` where used"),
            ("attention", "it calls flash-attn"),
            ("gradient_accumulation_steps", "a step is one segment"),
            ("gradient_checkpointing", "it recomputes nothing"),
            ("clip_grad_norm", "it does not clip"),
            ("zero_grad_set_to_none", "it frees its gradients"),
            ("train_mode", "only its training step is simulated"),
            ("dropout", "it has no dropout"),
            ("tie_word_embeddings", "its head has a weight of its own"),
            ("use_cache", "it generates nothing"),
            ("keep_outputs", "its loop keeps loss, carry and metrics"),
            ("logits_to_keep", "it answers at every position"),
            ("loss", "its loss is the config's `loss_type`"),
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
        (key == "micro_batch_size").then(|| format!("global_batch_size={}", value.saturating_mul(ranks)))
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
