//! What AGI2's own training loop has no switch for, and what the answer must say of it.

use crate::job::keys;
use crate::job::{Attention, CheckpointPolicy, JobError, JobSpec, LossKernel, Precision, Strategy, TaskName};
use crate::model_type::AGI2;

/// Refuses settings that the loop does not read.
pub(super) fn check_agi2(job: &JobSpec) -> Result<(), JobError> {
    if job.model.model_type != AGI2 {
        return Ok(());
    }
    let autocast_at_most = matches!(job.precision, Precision::Fp32 | Precision::AmpFp16 | Precision::AmpBf16);
    let is_ddp = matches!(job.parallel.strategy, Strategy::Ddp(_));
    let is_alone = job.parallel.world_size <= 1 && matches!(job.parallel.strategy, Strategy::None);
    let refused = [
        (keys::TASK, job.task.name() != TaskName::CausalLm, "only its training loop is simulated"),
        (keys::PRECISION, !autocast_at_most, "its weights are fp32, with or without autocast"),
        (
            keys::ATTENTION,
            job.attention != Attention::Eager,
            "its scores are tensors of their own (\"eager\"), no kernel is chosen",
        ),
        (keys::ZERO_GRAD_SET_TO_NONE, !job.zero_grad_set_to_none, "it frees its gradients"),
        (keys::TRAIN_MODE, !job.train_mode, "it calls model.train()"),
        (keys::PADDED, job.padded == Some(true), "it cuts a text into rows of one length"),
        (keys::USE_CACHE, job.use_cache, "it has no cache"),
        (keys::KEEP_OUTPUTS, job.logits.keep_outputs, "its loop keeps the logits in any case"),
        (keys::LOGITS_TO_KEEP, job.logits.logits_to_keep.is_some(), "its loss is of all logits"),
        (keys::LOSS, job.logits.loss != LossKernel::Full, "its loss is of all logits"),
        ("lora", job.lora.is_some(), "it is trained whole"),
        (
            keys::WORLD_SIZE,
            !is_alone && !is_ddp,
            "it trains on one GPU, and only DistributedDataParallel can be written into its loop",
        ),
    ];
    if let Some((key, _, why)) = refused.into_iter().find(|(_, is_set, _)| *is_set) {
        let problem = format!("`{key}` has no meaning for a small GPT in AGI2's trainer: {why}");
        return Err(JobError::new(problem).about(&[key]).hint(
            "leave it out, or measure a trainer that you changed: tonnage rehearse -- python agi2_train.py FILE.toml",
        ));
    }
    if job.seq_len < 2 {
        return Err(JobError::new("`seq_len` is 1: the model sees a row without its last token, which is none")
            .about(&[keys::SEQ_LEN])
            .hint("set it to 2 or more"));
    }
    Ok(())
}

/// What of the job is not as in the trainer, and how its rows are cut.
pub(super) fn agi2_notes(job: &JobSpec) -> Vec<String> {
    if job.model.model_type != AGI2 {
        return Vec::new();
    }
    let not_its_own = [
        ("gradient checkpointing", job.gradient_checkpointing != CheckpointPolicy::Off),
        ("gradient accumulation", job.gradient_accumulation_steps > 1),
        ("bf16", job.precision == Precision::AmpBf16),
        ("several ranks (DistributedDataParallel)", matches!(job.parallel.strategy, Strategy::Ddp(_))),
    ];
    let added: Vec<_> = not_its_own.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    let activation = job.model.config.get("activation_function").and_then(|name| name.as_str());
    let notes = [
        Some(format!(
            "a row of {} tokens trains {}: inputs leave out its last, targets its first",
            job.seq_len,
            job.seq_len.saturating_sub(1)
        )),
        job.row_growth.map(|growth| {
            format!(
                "rows grow from {} to {} tokens over {} epochs: a step of each of {} lengths is simulated before those of the \
                 longest, which take the most; what shorter rows leave behind may reserve more",
                growth.first,
                growth.last,
                growth.epochs,
                growth.rehearsed().len()
            )
        }),
        (!added.is_empty()).then(|| {
            format!(
                "AGI2's trainer has no switch for {}: estimated as its loop with it written in",
                added.join(" and ")
            )
        }),
        activation
            .filter(|name| *name != "gelu")
            .map(|name| format!("activation `{name}`: AGI2's layers do not read it, they run gelu")),
    ];
    notes.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{Ddp, Task, from_case};

    fn job() -> JobSpec {
        from_case(&json!({"kind": "agi2", "batch": 2})).unwrap()
    }

    #[test]
    fn what_the_loop_does_not_read_is_refused_by_name() {
        assert_eq!(check_agi2(&job()), Ok(()));
        let mut cases = vec![
            (JobSpec { precision: Precision::Bf16, ..job() }, "`precision`"),
            (JobSpec { attention: Attention::Sdpa, ..job() }, "`attention`"),
            (JobSpec { task: Task::Generate, ..job() }, "`task`"),
            (JobSpec { train_mode: false, ..job() }, "`train_mode`"),
            (JobSpec { seq_len: 1, ..job() }, "`seq_len`"),
        ];
        let mut spread = job();
        spread.parallel.world_size = 2;
        spread.parallel.strategy = Strategy::DataParallel;
        cases.push((spread, "`world_size`"));
        for (job, key) in cases {
            assert!(check_agi2(&job).unwrap_err().to_string().starts_with(key), "{key}");
        }
    }

    #[test]
    fn what_the_trainer_has_not_is_said() {
        let mut job = JobSpec { gradient_accumulation_steps: 2, precision: Precision::AmpBf16, ..job() };
        job.model.config.0.insert("activation_function".to_owned(), json!("relu"));
        job.parallel.strategy = Strategy::Ddp(Ddp::default());
        assert_eq!(check_agi2(&JobSpec { precision: Precision::Fp32, ..job.clone() }), Ok(()));
        let expected = [
            "a row of 512 tokens trains 511: inputs leave out its last, targets its first",
            "AGI2's trainer has no switch for gradient accumulation and bf16 and several ranks (DistributedDataParallel): estimated as its loop with it written in",
            "activation `relu`: AGI2's layers do not read it, they run gelu",
        ];
        assert_eq!(agi2_notes(&job), expected);
    }
}
