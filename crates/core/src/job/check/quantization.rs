//! What a quantized base can be trained with, as far as it is simulated.

use crate::job::{JobError, JobSpec, Strategy, Task, keys};

/// Refuses what transformers refuses, and what of quantized training is not simulated.
pub(super) fn check_quantization(job: &JobSpec) -> Result<(), JobError> {
    if job.quantization.is_none() {
        return Ok(());
    }
    let refused = |problem: &str| JobError::new(format!("`quantization`: {problem}")).about(&[keys::QUANTIZATION]);
    if job.task != Task::CausalLm {
        return Err(refused("quantized models are simulated in task = \"causal_lm\" alone").or_rehearse());
    }
    if job.lora.is_none() {
        return Err(refused("transformers does not train quantized weights themselves")
            .hint("train adapters on them: set lora.r, or lora.targets = \"all-linear\""));
    }
    if job.model.facts().has_experts {
        return Err(refused("experts beside quantized layers are not simulated").or_rehearse());
    }
    if !matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_)) {
        return Err(refused("of several ranks only DDP is simulated with quantized bases").or_rehearse());
    }
    Ok(())
}
