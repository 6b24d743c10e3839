//! What TRL's PPOTrainer refuses, and what of it is not simulated.

use super::trainer::{bound_rows, check_policy, holds_batches, not_zero};
use crate::job::{Head, JobError, JobErrorKind, JobSpec, ModelSpec, PpoSpec, Precision, keys};
use crate::model_type::{ModelKind, is_mirrored};

/// The most answers' tokens, the scores of each of which are kept.
const MOST_TOKENS: u64 = 1 << 11;
/// The most passes of an update, all of which are run, and the most rows, whose log-probabilities are taken one by one.
const MOST_PASSES: u64 = 1 << 9;
const MOST_ROWS: u64 = 1 << 13;

/// What `PPOTrainer` refuses.
pub(in crate::job) fn check_ppo(job: &JobSpec, ppo: &PpoSpec) -> Result<(), JobError> {
    check_policy(job)?;
    scores(&ppo.value, keys::PPO_VALUE_MODEL)?;
    scores(&ppo.reward, keys::PPO_REWARD_MODEL)?;
    not_zero(&[
        (keys::PROMPT_LEN, ppo.prompt_len),
        (keys::COMPLETION_LEN, ppo.response_length),
        (keys::PPO_NUM_PPO_EPOCHS, ppo.num_ppo_epochs),
        (keys::PPO_NUM_MINI_BATCHES, ppo.num_mini_batches),
        (keys::PPO_LOCAL_ROLLOUT_FORWARD_BATCH_SIZE, ppo.rollout_batch),
    ])?;
    divides_batches(job, ppo)?;
    is_simulated(job, ppo)?;
    holds_batches(job)?;
    let rows = job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps);
    let tokens = ppo.prompt_len.saturating_add(ppo.response_length);
    bound_rows(rows, "`micro_batch_size` x `gradient_accumulation_steps`", tokens)
}

/// A model that gives one score.
fn scores(model: &ModelSpec, key: &'static str) -> Result<(), JobError> {
    let is_whole = is_mirrored(&model.model_type) && model.beside.left_out.is_none();
    if model.facts().kind == ModelKind::Decoder && is_whole && model.can_have(Head::SequenceClassification) {
        return Ok(());
    }
    let problem = format!("a `{}` that scores rows is not simulated beside a policy", model.model_type);
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[key])
        .hint("choose a decoder such as Llama, Qwen2 or Mistral")
        .or_rehearse())
}

/// Mini-batches are whole passes.
fn divides_batches(job: &JobSpec, ppo: &PpoSpec) -> Result<(), JobError> {
    let passes = job.gradient_accumulation_steps;
    if passes.is_multiple_of(ppo.num_mini_batches) {
        return Ok(());
    }
    let problem = format!(
        "`ppo.num_mini_batches` {} does not divide the `gradient_accumulation_steps` {passes} of an update into whole passes",
        ppo.num_mini_batches
    );
    Err(JobError::new(problem)
        .about(&[keys::PPO_NUM_MINI_BATCHES, keys::GRADIENT_ACCUMULATION_STEPS])
        .hint("set it to a divisor"))
}

fn is_simulated(job: &JobSpec, ppo: &PpoSpec) -> Result<(), JobError> {
    let unsimulated =
        |problem: String, key: &'static str| JobError::of_kind(JobErrorKind::Unsimulated, problem).about(&[key]);
    if !matches!(job.precision, Precision::Fp32 | Precision::Bf16) {
        let problem = "`precision`: PPOTrainer makes an accelerator of its own, which bf16=True does not reach: weights are in the dtype \
                       they were loaded in";
        return Err(unsimulated(problem.to_owned(), keys::PRECISION)
            .hint("set precision = \"fp32\" or \"bf16\"")
            .or_rehearse());
    }
    if ppo.response_length > MOST_TOKENS {
        let problem = format!(
            "`completion_len` must be at most {MOST_TOKENS} for task = \"ppo\", which keeps the scores of every token"
        );
        return Err(unsimulated(problem, keys::COMPLETION_LEN).hint("lower it").or_rehearse());
    }
    let rows = job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps);
    let times = |of_epoch: u64| ppo.num_ppo_epochs.saturating_mul(of_epoch);
    if times(job.gradient_accumulation_steps) > MOST_PASSES || times(rows) > MOST_ROWS {
        let problem = format!(
            "`ppo.num_ppo_epochs` {} over {rows} rows in {} passes: {MOST_PASSES} passes and {MOST_ROWS} rows of an update are simulated, \
             one by one",
            ppo.num_ppo_epochs, job.gradient_accumulation_steps
        );
        return Err(unsimulated(problem, keys::PPO_NUM_PPO_EPOCHS)
            .hint("lower it: every epoch is alike")
            .or_rehearse());
    }
    if ppo.whiten_rewards
        && job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps) / ppo.num_mini_batches < 8
    {
        return Err(JobError::new("`ppo.whiten_rewards` needs mini-batches of 8 rows or more")
            .about(&[keys::PPO_WHITEN_REWARDS, keys::MICRO_BATCH_SIZE])
            .hint("raise `micro_batch_size` or `gradient_accumulation_steps`"));
    }
    Ok(())
}
