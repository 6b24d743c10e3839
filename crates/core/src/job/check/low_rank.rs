//! What an optimizer that projects gradients into a low rank does not go with.

use crate::job::keys;
use crate::job::{Framework, JobError, JobSpec, Strategy};

use super::reasons::refuse_first;

/// Refuses what was not measured: other loops than transformers', shards, adapters and quantized bases.
pub(super) fn fits_low_rank(job: &JobSpec) -> Result<(), JobError> {
    if !job.optimizer.is_low_rank() || !job.task.trains() {
        return Ok(());
    }
    let is_known = job.task.name().has_labels() && job.model.is_in_transformers();
    let is_whole = matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_));
    let instead = "set optimizer = \"adamw8bit\"";
    let refused = [
        (keys::TASK, !is_known, "it is simulated of transformers' models on labels", instead),
        (
            keys::FRAMEWORK,
            !matches!(job.framework, Framework::Loop | Framework::Trainer | Framework::Trl),
            "it is simulated in a loop of one's own and in transformers' Trainer",
            "set framework = \"trainer\"",
        ),
        (keys::PARALLEL, !is_whole, "a shard is no matrix that could be projected", "set parallel = \"ddp\""),
        (keys::LORA_R, job.lora.is_some(), "adapters are of a low rank already", "set optimizer = \"adamw8bit\""),
        (keys::QUANTIZATION, job.quantization.is_some(), "quantized weights have no gradients", instead),
        (
            keys::OPTIM_TARGET_MODULES,
            job.low_rank.unread_pattern().is_some(),
            "of patterns `.`, `.*` and letters are read",
            "name the layers: optim_target_modules = [\"attn\", \"mlp\"]",
        ),
    ];
    refuse_first("an optimizer in a low rank", keys::OPTIMIZER, refused)
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn what_was_not_measured_is_refused_by_its_key() {
        let source = || JobSource::model("gpt2").set("seq_len", 64).set("optimizer", "galore_adamw");
        assert!(source().resolve(&[]).is_ok());
        for (key, value) in [
            (keys::PARALLEL, "fsdp2"),
            (keys::LORA_R, "8"),
            (keys::OPTIM_TARGET_MODULES, "(q|k)_proj"),
            (keys::OPTIM_ARGS, "proj_type=full"),
        ] {
            let error = source().set(key, value).resolve(&[]).unwrap_err();
            assert!(error.keys.iter().any(|told| told == key), "{key}: {error}");
        }
    }
}
