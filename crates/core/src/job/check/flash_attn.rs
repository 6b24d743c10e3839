//! What `attention = "flash_attention_2"` takes: the flash-attn package's own conditions, and what of it is simulated.

use crate::job::keys;
use crate::job::{Attention, JobError, JobSpec, Strategy};

/// Refuses what the package refuses, and calls that are not simulated.
pub(super) fn check_flash_attn(job: &JobSpec) -> Result<(), JobError> {
    if job.attention != Attention::FlashAttention2 {
        return Ok(());
    }
    let refused = |problem: String| {
        JobError::new(format!("attention = \"flash_attention_2\": {problem}")).about(&[keys::ATTENTION])
    };
    let gathered = match job.parallel.strategy {
        Strategy::Fsdp1(options) => options.param_dtype,
        Strategy::Fsdp2(policy) => policy.param_dtype,
        _ => None,
    };
    let dtype = job.precision.autocast_dtype().or(gathered).unwrap_or(job.precision.weight_dtype());
    if !dtype.is_half() {
        return Err(refused("FlashAttention only support fp16 and bf16 data type".to_owned())
            .hint("set precision = \"bf16\" or \"amp-bf16\", or attention = \"sdpa\""));
    }
    let (major, minor) = job.gpu.compute_capability;
    if major < 8 {
        let problem =
            format!("FlashAttention only supports Ampere GPUs or newer, and {} is sm_{major}{minor}", job.gpu.name);
        return Err(refused(problem).hint("set attention = \"sdpa\""));
    }
    if !job.model.facts().flash_attention {
        let problem = format!("it is not simulated for `{}`", job.model.model_type);
        return Err(refused(problem).hint("set attention = \"sdpa\"").or_rehearse());
    }
    if job.task.facts().completion_len().is_some() {
        let problem =
            "batches of prompts and completions come with a mask, and what the package makes of one is not simulated";
        return Err(refused(problem.to_owned()).hint("set attention = \"sdpa\"").or_rehearse());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gpu::Gpu;
    use crate::job::from_case;

    fn job(family: &str, precision: &str) -> JobSpec {
        let model = json!({"family": family, "hidden_size": 64, "num_attention_heads": 2});
        from_case(&json!({"model": model, "precision": precision, "attn": "flash_attention_2"})).unwrap()
    }

    #[test]
    fn what_the_package_refuses_is_refused_with_its_words() {
        assert_eq!(check_flash_attn(&job("llama", "bf16")), Ok(()));
        assert_eq!(check_flash_attn(&job("llama", "amp_bf16")), Ok(()));
        let problem = |job: &JobSpec| check_flash_attn(job).unwrap_err().problem;
        assert!(problem(&job("llama", "fp32")).contains("only support fp16 and bf16"));
        assert!(problem(&job("gpt2", "bf16")).contains("not simulated for `gpt2`"));
        let turing = JobSpec { gpu: Gpu::parse("t4").unwrap(), ..job("llama", "fp16") };
        assert!(problem(&turing).contains("Ampere GPUs or newer, and NVIDIA T4 is sm_75"), "{}", problem(&turing));
    }
}
