//! What TRL's preference trainers refuse, and what of them is not simulated.

use super::trainer::{bound_rows, check_policy, holds_batches, not_zero};
use crate::job::{Framework, JobError, JobErrorKind, JobSpec, KtoSpec, PairsSpec, keys};

/// What `KTOTrainer` refuses.
pub(in crate::job) fn check_kto(job: &JobSpec, kto: &KtoSpec) -> Result<(), JobError> {
    check_policy(job)?;
    not_zero(&[(keys::PROMPT_LEN, kto.prompt_len), (keys::COMPLETION_LEN, kto.completion_len)])?;
    holds_batches(job)?;
    // TRL's collator changes them within a batch; others bring them with the data.
    let changes_places = kto.loss.estimates_divergence() && job.framework == Framework::Trl;
    if changes_places && job.micro_batch_size < 2 {
        return Err(JobError::new("`micro_batch_size` is 1: KTO's divergence is of answers that change places")
            .about(&[keys::MICRO_BATCH_SIZE, keys::KTO_LOSS])
            .hint("set it to 2 or more, or kto.loss = \"apo_zero_unpaired\""));
    }
    if kto.desirable_rows > job.micro_batch_size {
        let problem = format!(
            "`kto.desirable_rows` {} is more than the `micro_batch_size` {}",
            kto.desirable_rows, job.micro_batch_size
        );
        return Err(JobError::new(problem).about(&[keys::KTO_DESIRABLE_ROWS, keys::MICRO_BATCH_SIZE]).hint("lower it"));
    }
    bound_rows(job.micro_batch_size, "`micro_batch_size`", kto.prompt_len.saturating_add(kto.completion_len))
}

/// What `ORPOTrainer` and `CPOTrainer` refuse, and the router's loss, which they take from the model.
pub(in crate::job) fn check_pairs(job: &JobSpec, pairs: &PairsSpec) -> Result<(), JobError> {
    check_policy(job)?;
    not_zero(&[(keys::PROMPT_LEN, pairs.prompt_len), (keys::COMPLETION_LEN, pairs.completion_len)])?;
    holds_batches(job)?;
    let field = "output_router_logits";
    if job.model.facts().has_experts && job.model.config.flag(field, false)? {
        let problem = format!("config key `{field}`: the loss that balances experts is not simulated for this trainer");
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[format!("model.{field}")])
            .hint(format!("leave `{field}` out of the config, as published ones do"))
            .or_rehearse());
    }
    let tokens = pairs.prompt_len.saturating_add(pairs.completion_len);
    bound_rows(job.micro_batch_size.saturating_mul(2), "2 x `micro_batch_size`", tokens)
}
