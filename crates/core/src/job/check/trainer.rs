//! What trainers of several models, nodes or ranks refuse, with the arithmetic.

use super::trl_ranks::fits_trl_ranks;
use super::{MAX_TOKENS_PER_PASS, flat_shards, has_decoder_head, shards};
use crate::job::keys;
use crate::job::{
    DeepSpeed, DpoSpec, GrpoSpec, JobError, JobErrorKind, JobSpec, JudgePlace, JudgeSpec, LogProbs, LossKernel,
    Spreading, Strategy, SwarmLogProbs, SwarmSpec,
};
use crate::model_type::ModelKind;

/// The most batches that a loop holds at once, two or three tensors each.
const MAX_HELD_BATCHES: u64 = 1 << 16;
/// The most chunks of a node's rows: what each leaves is alive until the end of the step.
const MAX_CHUNKS: u64 = 1 << 14;
/// The most ranks of a trainer that gathers what it logs.
const MAX_GATHERED_RANKS: u64 = 1 << 16;
/// The most parts of a generation batch, one a pass, and the most rows that are taken one by one.
const MAX_PARTS: u64 = 1 << 17;

/// Refuses a policy that writes no text, and a loss that the trainer does not use.
pub(super) fn check_policy(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::Decoder {
        return Err(JobError::new(format!("`{}` generates no text", job.model.model_type))
            .about(&[keys::TASK])
            .hint("choose a decoder"));
    }
    if job.logits.loss != LossKernel::Full {
        return Err(JobError::new("loss = \"liger\": the trainer computes its own loss")
            .about(&[keys::LOSS])
            .hint("leave out `loss`"));
    }
    Ok(())
}

/// `GRPOConfig.__post_init__`: a generation batch holds whole groups, of at least two.
pub(in crate::job) fn check_grpo(job: &JobSpec, grpo: &GrpoSpec) -> Result<(), JobError> {
    check_policy(job)?;
    if grpo.num_generations < 2 {
        return Err(JobError::new(format!("`num_generations` is {}: an advantage needs 2", grpo.num_generations))
            .about(&[keys::NUM_GENERATIONS])
            .hint("set it to 2 or more"));
    }
    let sizes = [
        (keys::PROMPT_LEN, grpo.prompt_len),
        (keys::COMPLETION_LEN, grpo.completion_len),
        (keys::GRPO_STEPS_PER_GENERATION, grpo.steps_per_generation),
        (keys::GRPO_NUM_ITERATIONS, grpo.num_iterations),
    ];
    not_zero(&sizes)?;
    if grpo.steps_per_generation > MAX_PARTS {
        let problem = format!(
            "`grpo.steps_per_generation` must be from 1 to {MAX_PARTS}, found {} (`gradient_accumulation_steps` where it is not given)",
            grpo.steps_per_generation
        );
        return Err(JobError::new(problem)
            .about(&[keys::GRPO_STEPS_PER_GENERATION, keys::GRADIENT_ACCUMULATION_STEPS])
            .hint("lower `gradient_accumulation_steps`, or give `grpo.steps_per_generation`"));
    }
    if grpo.log_probs == LogProbs::FullLogits && job.micro_batch_size > MAX_PARTS {
        let problem = format!(
            "`micro_batch_size` must be from 1 to {MAX_PARTS} with grpo.log_probs = \"full_logits\", which takes rows one by \
             one, found {}",
            job.micro_batch_size
        );
        return Err(JobError::new(problem)
            .about(&[keys::MICRO_BATCH_SIZE, keys::GRPO_LOG_PROBS])
            .hint("lower `micro_batch_size`"));
    }
    let tokens = grpo.prompt_len.saturating_add(grpo.completion_len);
    let rows = job.micro_batch_size.saturating_mul(grpo.steps_per_generation);
    bound_rows(rows, "`micro_batch_size` x `grpo.steps_per_generation`", tokens)?;
    let world_size = job.parallel.world_size;
    let rows = job.micro_batch_size.saturating_mul(grpo.steps_per_generation).saturating_mul(world_size);
    if !rows.is_multiple_of(grpo.num_generations) {
        let ranks = if world_size > 1 { format!(" x {world_size} ranks") } else { String::new() };
        let problem = format!(
            "a generation batch of `micro_batch_size` {} x `grpo.steps_per_generation` {}{ranks} = {rows} rows does not \
             divide into groups of `num_generations` {}",
            job.micro_batch_size, grpo.steps_per_generation, grpo.num_generations
        );
        return Err(JobError::new(problem)
            .about(&[keys::MICRO_BATCH_SIZE, keys::GRPO_STEPS_PER_GENERATION, keys::NUM_GENERATIONS])
            .hint("keep groups whole: change one of the three"));
    }
    match &grpo.judge {
        Some(judge) => check_judge(judge, world_size),
        None => Ok(()),
    }
}

/// A judge that reads nothing, and one beside several ranks, each of which asks it.
fn check_judge(judge: &JudgeSpec, ranks: u64) -> Result<(), JobError> {
    if judge.rows == Some(0) {
        return Err(JobError::new("`judge.rows` must be at least 1, found 0").about(&[keys::JUDGE_ROWS]));
    }
    if judge.place == JudgePlace::OtherGpu && ranks > 1 {
        let problem = "`judge.place`: a judge on a GPU of its own is simulated beside one rank";
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::JUDGE_PLACE, keys::WORLD_SIZE])
            .hint("set judge.place = \"same_gpu\": each rank then has a judge beside it")
            .or_rehearse());
    }
    Ok(())
}

/// What `DPOTrainer` refuses.
pub(in crate::job) fn check_dpo(job: &JobSpec, dpo: &DpoSpec) -> Result<(), JobError> {
    check_policy(job)?;
    not_zero(&[(keys::PROMPT_LEN, dpo.prompt_len), (keys::COMPLETION_LEN, dpo.completion_len)])?;
    holds_batches(job)?;
    bound_rows(
        job.micro_batch_size.saturating_mul(2),
        "2 x `micro_batch_size`",
        dpo.prompt_len.saturating_add(dpo.completion_len),
    )
}

/// What `RewardTrainer` refuses, and heads that are not known.
pub(in crate::job) fn check_reward(job: &JobSpec) -> Result<(), JobError> {
    if job.model.facts().kind != ModelKind::MaskedLm {
        has_decoder_head(job)?;
    }
    if job.logits.loss != LossKernel::Full || job.logits.logits_to_keep.is_some() {
        return Err(JobError::new(
            "`loss`, `logits_to_keep`: a reward model scores rows, and its trainer computes the loss",
        )
        .about(&[keys::LOSS, keys::LOGITS_TO_KEEP])
        .hint("leave both out"));
    }
    holds_batches(job)?;
    bound_rows(job.micro_batch_size.saturating_mul(2), "2 x `micro_batch_size`", job.seq_len)
}

/// Refuses more batches of a step than trainers' loops can hold at once.
pub(super) fn holds_batches(job: &JobSpec) -> Result<(), JobError> {
    if job.gradient_accumulation_steps <= MAX_HELD_BATCHES {
        return Ok(());
    }
    let problem = format!(
        "`gradient_accumulation_steps` must be from 1 to {MAX_HELD_BATCHES} for {}, which loads all batches of a step at once, \
         found {}",
        job.task.facts().program(),
        job.gradient_accumulation_steps
    );
    Err(JobError::new(problem).about(&[keys::GRADIENT_ACCUMULATION_STEPS]).hint("lower `gradient_accumulation_steps`"))
}

/// Refuses more tokens in a batch than any GPU holds.
pub(super) fn bound_rows(rows: u64, named: &str, tokens: u64) -> Result<(), JobError> {
    if rows.saturating_mul(tokens) <= MAX_TOKENS_PER_PASS {
        return Ok(());
    }
    let problem = format!(
        "{named} = {rows} rows of `prompt_len` + `completion_len` = {tokens} tokens is more than a GPU can hold: at most {} rows",
        MAX_TOKENS_PER_PASS / tokens.max(1)
    );
    Err(JobError::new(problem).about(&[keys::PROMPT_LEN, keys::COMPLETION_LEN]).hint("lower them"))
}

/// What a node refuses.
pub(in crate::job) fn check_swarm(job: &JobSpec, swarm: &SwarmSpec) -> Result<(), JobError> {
    check_policy(job)?;
    let chunk = match swarm.log_probs {
        SwarmLogProbs::Full => 1,
        SwarmLogProbs::Chunked { rows } | SwarmLogProbs::ChunkedHead { rows } => rows,
    };
    let generate_rows = if swarm.generates { swarm.generate_rows } else { 1 };
    not_zero(&[
        (keys::PROMPT_LEN, swarm.prompt_len),
        (keys::COMPLETION_LEN, swarm.completion_len),
        (keys::SWARM_NODES, swarm.nodes),
        (keys::SWARM_GPUS, swarm.gpus),
        (keys::SWARM_GENERATE_ROWS, generate_rows),
        (keys::SWARM_ROWS_PER_CHUNK, chunk),
        (keys::SWARM_LEASE, swarm.lease.unwrap_or(1)),
    ])?;
    if swarm.train_rows == 0 {
        let problem = format!(
            "a node has no rows: `swarm.local_questions` {} + `swarm.external_questions` {}, times `num_generations` {}",
            swarm.local_questions, swarm.external_questions, swarm.num_generations
        );
        return Err(JobError::new(problem)
            .about(&[keys::SWARM_LOCAL_QUESTIONS, keys::SWARM_EXTERNAL_QUESTIONS, keys::NUM_GENERATIONS])
            .hint("give it questions"));
    }
    bound_rows(
        swarm.train_rows,
        "(`swarm.local_questions` + `swarm.external_questions`) x `num_generations`",
        job.seq_len,
    )?;
    if swarm.train_rows.div_ceil(chunk) > MAX_CHUNKS && swarm.log_probs != SwarmLogProbs::Full {
        let problem = format!(
            "`swarm.rows_per_chunk` {chunk} makes {} chunks of {} rows; at most {MAX_CHUNKS} are simulated",
            swarm.train_rows.div_ceil(chunk),
            swarm.train_rows
        );
        let least = swarm.train_rows.div_ceil(MAX_CHUNKS);
        return Err(JobError::new(problem)
            .about(&[keys::SWARM_ROWS_PER_CHUNK])
            .hint(format!("set it to {least} or more")));
    }
    let generated = swarm.local_questions.saturating_mul(swarm.num_generations);
    if swarm.generates && swarm.generate_rows > generated {
        let problem = format!(
            "`swarm.generate_rows` {} is more than the `swarm.local_questions` {} x `num_generations` {} = {generated} rows \
             there are",
            swarm.generate_rows, swarm.local_questions, swarm.num_generations
        );
        return Err(JobError::new(problem)
            .about(&[keys::SWARM_GENERATE_ROWS, keys::SWARM_LOCAL_QUESTIONS, keys::NUM_GENERATIONS])
            .hint(format!("set it to {generated} or less")));
    }
    if job.gradient_accumulation_steps > 1 {
        return Err(JobError::new("`gradient_accumulation_steps`: a node trains on all its rows in one pass")
            .about(&[keys::GRADIENT_ACCUMULATION_STEPS, keys::SWARM_LOG_PROBS])
            .hint("set swarm.log_probs = \"chunked_head\" to lower its peak"));
    }
    Ok(())
}

pub(super) fn not_zero(sizes: &[(&str, u64)]) -> Result<(), JobError> {
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some((key, _)) => Err(JobError::new(format!("`{key}` must be at least 1, found 0")).about(&[key])),
        None => Ok(()),
    }
}

/// Wrappers are simulated round the plain training step.
pub(super) fn fits_ranks(job: &JobSpec) -> Result<(), JobError> {
    if job.parallel.world_size == 0 {
        return Err(JobError::new("`world_size` must be at least 1, found 0").about(&[keys::WORLD_SIZE]));
    }
    if let Strategy::DeepSpeed(DeepSpeed { stage, .. }) = job.parallel.strategy
        && !(1..=3).contains(&stage)
    {
        return Err(JobError::new(format!("`deepspeed.stage` must be 1, 2 or 3, found {stage}"))
            .about(&[keys::DEEPSPEED_STAGE]));
    }
    if job.parallel.rank >= job.parallel.world_size {
        let problem = format!("rank {} of `world_size` {}", job.parallel.rank, job.parallel.world_size);
        return Err(JobError::new(problem).about(&[keys::WORLD_SIZE]).hint("ranks count from 0"));
    }
    if job.task.facts().spreading() == Spreading::Replicas && job.parallel.world_size > MAX_GATHERED_RANKS {
        let problem = format!("`world_size` must be at most {MAX_GATHERED_RANKS}, whose rows are gathered");
        return Err(JobError::new(problem).about(&[keys::WORLD_SIZE]));
    }
    if job.task.facts().spreading() == Spreading::Replicas && job.parallel.strategy != Strategy::None {
        fits_trl_ranks(job)?;
    }
    shards::fits_hybrid_shards(job)?;
    match job.parallel.strategy {
        Strategy::Fsdp1(options) => flat_shards::fits_flat_shards(job, options)?,
        Strategy::Fsdp2(_) => shards::fits_shards(job)?,
        _ => {}
    }
    super::offload::fits_offload(job)?;
    match (job.task.facts().spreading(), job.parallel.strategy) {
        (_, Strategy::None)
        | (Spreading::Ranks | Spreading::Replicas, _)
        | (Spreading::OwnRanks, Strategy::AllReduce) => return Ok(()),
        (Spreading::OwnRanks, _) => {
            let problem = "`parallel`: HRM's loop has no wrapper, it all-reduces its gradients itself";
            return Err(JobError::new(problem)
                .about(&[keys::PARALLEL])
                .hint("leave `parallel` out, or set parallel = \"all_reduce\""));
        }
        _ => {}
    }
    let task = serde_json::to_value(job.task.name()).unwrap_or_default();
    let problem = format!("`parallel`: ranks are simulated for training, not for task = {task}");
    Err(JobError::new(problem).about(&[keys::PARALLEL, keys::WORLD_SIZE]).hint(without_ranks(job.parallel.strategy)))
}

/// What answers instead: a replica holds all that one process holds, a shard less.
pub(super) const fn without_ranks(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::DataParallel | Strategy::AllReduce | Strategy::Ddp(_) => {
            "leave out `parallel` and `world_size`: each rank needs at least what one process needs; or `tonnage rehearse --gpus \
             N -- torchrun --nproc-per-node N train.py` runs your script"
        }
        _ => {
            "one process would need more than a rank that holds a share: `tonnage rehearse --gpus N -- torchrun --nproc-per-node \
             N train.py` runs your script and tells each rank's peak"
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{Parallel, from_case};

    #[test]
    fn ranks_that_were_measured_are_simulated_and_others_refused_with_the_way_out() {
        for kind in ["trl_dpo", "trl_reward", "trl_grpo"] {
            let job = from_case(&json!({"kind": kind, "world": 4})).unwrap();
            assert_eq!(fits_ranks(&job), Ok(()));
            let job = JobSpec { parallel: Parallel { strategy: Strategy::AllReduce, ..job.parallel }, ..job };
            let error = fits_ranks(&job).unwrap_err().to_string();
            assert!(error.contains("are simulated under parallel = \"ddp\""), "{error}");
        }
    }
}
