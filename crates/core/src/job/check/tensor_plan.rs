//! What tensor parallelism by transformers' plan does not go with.

use crate::job::keys;
use crate::job::{Framework, JobError, JobSpec, LossKernel, OptimizerKind, Task, TransformersVersion};

use super::reasons::{Reason, refuse_first};

/// Refuses what was not measured with layers that ranks share, and what fails: PyTorch 2.11 has no foreach or fused kernel over parts and
/// whole parameters.
pub(super) fn fits_tensor_plan(job: &JobSpec) -> Result<(), JobError> {
    if job.parallel.ranks_of_layers().is_none() {
        return Ok(());
    }
    refuse_first(
        "tensor.plan = \"transformers\"",
        keys::TENSOR_PLAN,
        training_refusals(job).into_iter().chain(weight_refusals(job)),
    )
}

/// What the loop, the model and the optimizer must be.
fn training_refusals(job: &JobSpec) -> [Reason; 6] {
    let in_trainer = job.framework == Framework::Trainer;
    let is_stepped = match job.optimizer {
        OptimizerKind::AdamwForloop => true,
        OptimizerKind::Adamw | OptimizerKind::AdamwFused => in_trainer,
        _ => false,
    };
    let whole = "set parallel = \"ddp\"";
    let facts = job.model.facts();
    let megatron = if facts.divides_heads && !facts.has_experts {
        "set tensor.plan = \"megatron\", whose range is wide"
    } else {
        "ddp and fsdp2 keep layers whole"
    };
    let is_known = job.framework == Framework::Loop || in_trainer;
    [
        (keys::MODEL, !facts.has_tensor_plan, "its plan was not measured", megatron),
        (keys::TASK, job.task != Task::CausalLm, "next tokens are what was measured", whole),
        (keys::FRAMEWORK, !is_known, "it was measured in a loop of one's own and in transformers' Trainer", whole),
        (
            keys::TRANSFORMERS,
            job.transformers != TransformersVersion::DEFAULT,
            "other versions divide layers another way",
            "leave `transformers` out",
        ),
        (
            keys::OPTIMIZER,
            !is_stepped,
            "no kernel steps parts and whole parameters together",
            "set optimizer = \"adamw_forloop\"",
        ),
        (
            keys::CLIP_GRAD_NORM,
            job.clip_grad_norm.is_some() && !in_trainer,
            "torch.nn.utils.clip_grad_norm_ fails on parts beside whole gradients",
            "leave it out, or set framework = \"trainer\"",
        ),
    ]
}

/// What reads weights otherwise, or was not measured beside parts.
fn weight_refusals(job: &JobSpec) -> [Reason; 7] {
    let sharded = "set parallel = \"fsdp2\"";
    [
        (keys::LORA_R, job.lora.is_some(), "adapters on parts were not measured", sharded),
        (keys::QUANTIZATION, job.quantization.is_some(), "quantized parts were not measured", sharded),
        (
            keys::USE_LIGER_KERNEL,
            job.liger_kernels || job.logits.loss != LossKernel::Full,
            "Liger's kernels read weights as whole tensors",
            "leave Liger's kernels out",
        ),
        (
            keys::KERNELS,
            !job.kernels.is_empty(),
            "fms-acceleration's kernels read weights as whole tensors",
            "leave them out",
        ),
        (keys::USE_REENTRANT, job.use_reentrant, "the older form of checkpoints was not measured", "leave it out"),
        (keys::PADDING_FREE, job.padding_free, "rows end to end were not measured", "leave it out"),
        (
            keys::ACTIVATION_OFFLOADING,
            job.activation_offload.is_some(),
            "offloaded activations were not measured",
            "leave it out",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn what_was_not_measured_is_refused_by_its_key() {
        let source = || {
            let source =
                JobSource::model("llama-3.2-1b").set("seq_len", 64).set("parallel", "tensor").set("world_size", 4);
            source.set("framework", "loop").set("tensor.plan", "transformers").set("optimizer", "adamw_forloop")
        };
        assert!(source().resolve(&[]).is_ok());
        assert!(source().set("framework", "trainer").set("optimizer", "adamw_fused").resolve(&[]).is_ok());
        for (key, value) in [
            (keys::OPTIMIZER, "adamw"),
            (keys::CLIP_GRAD_NORM, "1.0"),
            (keys::LORA_R, "8"),
            (keys::QUANTIZATION, "nf4"),
            (keys::FRAMEWORK, "trl"),
            (keys::TRANSFORMERS, "4.51"),
        ] {
            let error = source().set(key, value).resolve(&[]).unwrap_err();
            assert!(error.keys.iter().any(|told| told == key), "{key}: {error}");
        }
    }
}
