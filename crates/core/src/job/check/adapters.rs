//! What DoRA's magnitudes, and modules that are trained in full beside adapters, do not go with here.

use crate::job::keys;
use crate::job::{JobError, JobErrorKind, JobSpec, LoraSpec, LossKernel, Rollout, Strategy, Task};

/// Refuses what was not measured with them.
pub(super) fn check_adapters(job: &JobSpec) -> Result<(), JobError> {
    let Some(lora) = &job.lora else { return Ok(()) };
    if lora.use_dora {
        check_dora(job)?;
    }
    if !lora.modules_to_save.is_empty() {
        check_modules_to_save(job, lora)?;
    }
    Ok(())
}

fn unsimulated(key: &'static str, problem: &str, beside: &str) -> JobError {
    JobError::of_kind(JobErrorKind::Unsimulated, format!("`{key}`: {problem}")).about(&[key, beside])
}

fn check_dora(job: &JobSpec) -> Result<(), JobError> {
    let refused = |problem: &str, beside: &str| unsimulated(keys::LORA_USE_DORA, problem, beside);
    if job.quantization.is_some() {
        let problem = "a base in 4 or 8 bits is unpacked for the norm of its rows, which is not simulated";
        return Err(refused(problem, keys::QUANTIZATION).or_rehearse());
    }
    if matches!(job.task, Task::Diffusion(_) | Task::Seq2SeqLm(_)) {
        let problem = "magnitudes are simulated of models that predict the next token";
        return Err(refused(problem, keys::TASK).hint("leave lora.use_dora out").or_rehearse());
    }
    if !job.kernels.is_empty() {
        let problem = "fms-acceleration's kernels have no form of it";
        return Err(refused(problem, keys::KERNELS).hint("leave `kernels` out").or_rehearse());
    }
    if job.task.grpo().is_some_and(|grpo| matches!(grpo.rollout, Rollout::Vllm { .. })) {
        let problem = "the engine gets merged weights, whose norms are not simulated";
        return Err(refused(problem, keys::GRPO_ROLLOUT).hint("set grpo.rollout = \"generate\"").or_rehearse());
    }
    if !is_whole(job) {
        let problem = "magnitudes are simulated on one GPU and under DDP";
        return Err(refused(problem, keys::PARALLEL).hint(BY_DDP).or_rehearse());
    }
    Ok(())
}

fn check_modules_to_save(job: &JobSpec, lora: &LoraSpec) -> Result<(), JobError> {
    let refused = |problem: &str, beside: &str| unsimulated(keys::LORA_MODULES_TO_SAVE, problem, beside);
    let is_decoder = job.task == Task::CausalLm || job.task.facts().learns_preferences();
    if !is_decoder || matches!(job.task, Task::Reward(_)) {
        let problem = "copies of embeddings and heads are simulated with causal_lm, dpo, kto, orpo and cpo";
        return Err(refused(problem, keys::TASK).or_rehearse());
    }
    if !job.kernels.is_empty() || job.liger_kernels || job.logits.loss != LossKernel::Full {
        let problem = "with kernels that read the head's weight copies were not measured";
        return Err(refused(problem, keys::LOSS)
            .hint("leave `kernels`, `loss` and `use_liger_kernel` out")
            .or_rehearse());
    }
    if !is_whole(job) {
        let problem = "copies are simulated on one GPU and under DDP";
        return Err(refused(problem, keys::PARALLEL).hint(BY_DDP).or_rehearse());
    }
    let is_both = |target: &String| lora.modules_to_save.iter().any(|name| target.ends_with(name.as_str()));
    if lora.targets.iter().any(is_both) {
        let problem = "a module gets an adapter or a copy, not both";
        return Err(JobError::new(format!("`lora.modules_to_save`: {problem}"))
            .about(&[keys::LORA_MODULES_TO_SAVE, keys::LORA_TARGETS])
            .hint("leave it out of lora.targets"));
    }
    Ok(())
}

const BY_DDP: &str = "set parallel = \"ddp\": each rank needs at least as much";

const fn is_whole(job: &JobSpec) -> bool {
    matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_))
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn what_is_not_simulated_beside_them_is_refused_by_both_names() {
        let refused = |settings: &[(&str, &str)]| {
            let source = JobSource::model("Qwen/Qwen2.5-0.5B").set(keys::LORA_R, 8);
            let source = settings.iter().fold(source, |source, (key, value)| source.set(key, *value));
            source.resolve(&[]).err().map(|error| error.keys.join(" "))
        };
        let dora = (keys::LORA_USE_DORA, "true");
        let saved = (keys::LORA_MODULES_TO_SAVE, "embed_tokens,lm_head");
        assert_eq!(refused(&[dora, saved]), None);
        assert_eq!(refused(&[saved, (keys::QUANTIZATION, "nf4"), (keys::TASK, "dpo")]), None);
        for (settings, about) in [
            ([dora, (keys::QUANTIZATION, "nf4")].as_slice(), "lora.use_dora quantization"),
            (&[dora, (keys::PARALLEL, "fsdp2"), (keys::WORLD_SIZE, "4")], "lora.use_dora parallel"),
            (&[dora, (keys::MODEL, "flan-t5-base"), (keys::TASK, "seq2seq_lm")], "lora.use_dora task"),
            (&[saved, (keys::PARALLEL, "fsdp1"), (keys::WORLD_SIZE, "4")], "lora.modules_to_save parallel"),
            (&[saved, (keys::TASK, "grpo")], "lora.modules_to_save task"),
            (&[saved, (keys::LOSS, "liger")], "lora.modules_to_save loss"),
            (&[saved, (keys::LORA_TARGETS, "q_proj,lm_head")], "lora.modules_to_save lora.targets"),
        ] {
            assert_eq!(refused(settings).as_deref(), Some(about));
        }
    }
}
