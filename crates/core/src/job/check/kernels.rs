//! What kernels of other programs can be put in the place of, as far as it is simulated.

use crate::job::{Framework, JobError, JobSpec, Kernel, QuantizedWeights, Strategy, Task, keys};
use crate::model_type::{Foak, with_foak};

/// Layers of attention, whose products with adapters are fused.
const FUSED: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];

/// Refuses what is not simulated with the kernels that the job names.
pub(super) fn check_kernels(job: &JobSpec) -> Result<(), JobError> {
    if job.kernels.is_empty() {
        return Ok(());
    }
    let refused = |problem: String| JobError::new(format!("`kernels`: {problem}")).about(&[keys::KERNELS]);
    let rules = job.model.facts().foak;
    if rules == Foak::Untouched {
        return Err(refused(format!("fms-acceleration's kernels are not simulated in `{}`", job.model.model_type))
            .hint(format!("simulated are {}", with_foak().join(", ")))
            .or_rehearse());
    }
    if job.model.facts().has_experts && !job.transformers.loops_over_experts() {
        return Err(refused("of mixtures of experts they were read with transformers 4".to_owned())
            .about(&[keys::KERNELS, keys::TRANSFORMERS])
            .hint("set transformers = \"4.48\"")
            .or_rehearse());
    }
    if job.task != Task::CausalLm || job.framework == Framework::Trl {
        return Err(refused("they are simulated in plain training on next tokens, by the Trainer's loop".to_owned())
            .hint("set task = \"causal_lm\" and framework = \"trainer\"")
            .or_rehearse());
    }
    if job.kernels.has(Kernel::FastLoss) && job.kernels.has(Kernel::FusedCeLiger) {
        return Err(refused("fast_loss is either the cross-entropy or Liger's".to_owned())
            .hint("name fast_loss or fused_ce_liger"));
    }
    if rules == Foak::CrossEntropy && job.kernels.has(Kernel::FusedCeLiger) {
        return Err(refused(format!("the framework has no fused_ce_liger for `{}`", job.model.model_type))
            .hint("name fast_loss"));
    }
    if job.kernels.has(Kernel::FusedLora) { check_fused_lora(job, &refused) } else { Ok(()) }
}

fn check_fused_lora(job: &JobSpec, refused: &dyn Fn(String) -> JobError) -> Result<(), JobError> {
    let is_packed = |weights: QuantizedWeights| weights.is_four_bit() || weights == QuantizedWeights::Gptq;
    let Some(quantization) = job.quantization.filter(|quantization| is_packed(quantization.weights)) else {
        let problem = "fused_lora is for adapters on a base in 4 bits: the framework leaves it out elsewhere";
        return Err(refused(problem.to_owned()).hint("leave fused_lora out, or set quantization = \"nf4\""));
    };
    let has_scales = quantization.double || quantization.weights == QuantizedWeights::Gptq;
    if !has_scales || job.precision.autocast_dtype().is_none() || quantization.prepared {
        let problem = "fused_lora reads quantized scales, under autocast, of a base that peft did not prepare";
        return Err(refused(problem.to_owned()).hint(
            "set bnb_4bit_use_double_quant = true, prepare_for_kbit_training = false and precision = \"bf16-amp\"",
        ));
    }
    let names_others = |lora: &crate::job::LoraSpec| {
        lora.targets.iter().any(|target| !FUSED.iter().any(|name| target.ends_with(name)))
    };
    if job.model.facts().foak == Foak::Whole && job.lora.as_ref().is_some_and(names_others) {
        return Err(refused(
            "its kernel for the MLP multiplies a gradient by a mask of another shape, and fails".to_owned(),
        )
        .about(&[keys::KERNELS, keys::LORA_TARGETS])
        .hint("adapt q_proj, k_proj, v_proj and o_proj alone, or leave fused_lora out"));
    }
    match job.parallel.strategy {
        Strategy::None | Strategy::Ddp(_) | Strategy::Fsdp1(_) => Ok(()),
        _ => Err(refused("of several ranks fused_lora is simulated with DDP and FSDP1".to_owned()).or_rehearse()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::job::from_case;

    fn problem(family: &str, kernels: &[&str], more: &Value) -> Option<String> {
        let model = match family {
            "gpt_bigcode" => json!({"family": family, "n_embd": 64, "n_head": 2}),
            _ => json!({"family": family, "hidden_size": 64, "num_attention_heads": 2}),
        };
        let mut case = json!({"kind": "trainer", "model": model, "kernels": kernels, "precision": "bf16_amp"});
        case.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check_kernels(&from_case(&case).unwrap()).err().map(|error| error.problem)
    }

    #[test]
    fn what_is_not_simulated_is_refused() {
        let (layers, fused) = (["fast_rms_layernorm", "fast_loss"], ["fused_lora"]);
        let plain = json!({});
        assert_eq!(problem("llama", &layers, &plain), None);
        assert!(problem("qwen2", &layers, &plain).unwrap().contains("`qwen2`"));
        assert!(problem("llama", &layers, &json!({"framework": "trl"})).unwrap().contains("Trainer's loop"));
        assert!(problem("llama", &["fast_loss", "fused_ce_liger"], &plain).unwrap().contains("or Liger's"));
        assert!(problem("llama", &fused, &plain).unwrap().contains("4 bits"));
        let base = json!({"weights": "nf4", "double": true, "prepared": false});
        let on = |target: &str| json!({"quantization": base, "lora": {"r": 4, "targets": ["q_proj", target]}});
        assert_eq!(problem("llama", &fused, &on("o_proj")), None);
        assert!(problem("llama", &fused, &on("up_proj")).unwrap().contains("MLP"));
        assert_eq!(problem("gpt_bigcode", &["fast_loss", "fused_lora"], &on("c_attn")), None);
        assert!(problem("gpt_bigcode", &["fused_ce_liger"], &plain).unwrap().contains("no fused_ce_liger"));
    }
}
