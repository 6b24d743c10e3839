//! What TRL's GKDTrainer refuses, and what of it is not simulated.

use super::trainer::{bound_rows, check_policy, holds_batches, not_zero};
use crate::job::{CheckpointPolicy, GkdSpec, JobError, JobErrorKind, JobSpec, keys};
use crate::model_type::{ModelKind, is_mirrored};

/// The most tokens that are generated without a cache, each of which runs all before it.
const MOST_RUN_AGAIN: u64 = 1 << 11;

/// What `GKDTrainer` refuses.
pub(in crate::job) fn check_gkd(job: &JobSpec, gkd: &GkdSpec) -> Result<(), JobError> {
    check_policy(job)?;
    if gkd.teacher.facts().kind != ModelKind::Decoder {
        return Err(JobError::new(format!("the teacher `{}` writes no text", gkd.teacher.model_type))
            .about(&[keys::GKD_TEACHER_MODEL])
            .hint("choose a decoder"));
    }
    if !is_mirrored(&gkd.teacher.model_type) || gkd.teacher.beside.left_out.is_some() {
        let problem = format!("the teacher is a `{}`, which no family mirrors whole", gkd.teacher.model_type);
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::GKD_TEACHER_MODEL])
            .or_rehearse());
    }
    not_zero(&[
        (keys::PROMPT_LEN, gkd.prompt_len),
        (keys::COMPLETION_LEN, gkd.completion_len),
        (keys::GKD_MAX_NEW_TOKENS, gkd.max_new_tokens),
    ])?;
    shares_vocabulary(job, gkd)?;
    generates_with_cache(job, gkd)?;
    holds_batches(job)?;
    bound_rows(job.micro_batch_size, "`micro_batch_size`", gkd.longest_row())
}

/// Both predict the same tokens.
fn shares_vocabulary(job: &JobSpec, gkd: &GkdSpec) -> Result<(), JobError> {
    let sizes = [&job.model, &gkd.teacher].map(|model| model.config.get("vocab_size").and_then(|size| size.as_u64()));
    let [Some(student), Some(teacher)] = sizes else { return Ok(()) };
    if student == teacher {
        return Ok(());
    }
    let problem = format!(
        "the student has a vocabulary of {student} tokens, the teacher `{}` one of {teacher}",
        gkd.teacher.name
    );
    Err(JobError::new(problem)
        .about(&[keys::GKD_TEACHER_MODEL, keys::MODEL])
        .hint("GKDTrainer compares whole distributions: choose a teacher of the same vocabulary"))
}

/// With checkpointing GKDTrainer generates without a cache: a pass over all tokens for each.
fn generates_with_cache(job: &JobSpec, gkd: &GkdSpec) -> Result<(), JobError> {
    let runs_again = job.gradient_checkpointing != CheckpointPolicy::Off && gkd.generate_every() != u64::MAX;
    if !runs_again || gkd.max_new_tokens <= MOST_RUN_AGAIN {
        return Ok(());
    }
    let problem = format!(
        "`gkd.max_new_tokens` {} with gradient_checkpointing: GKDTrainer then generates without a cache, a pass over all tokens for \
         each, of which {MOST_RUN_AGAIN} are simulated",
        gkd.max_new_tokens
    );
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::GKD_MAX_NEW_TOKENS, keys::GRADIENT_CHECKPOINTING])
        .hint("lower it, or set gradient_checkpointing = false")
        .or_rehearse())
}
