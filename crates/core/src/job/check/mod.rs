//! What a job's values must be together, and what the answer must say about them.

mod adapters;
mod agi2;
mod compiled_step;
mod context_parallel;
pub(super) mod contrastive;
pub(crate) mod diffusion;
mod ema;
pub(super) mod embedding;
mod flash_attn;
mod flat_shards;
pub(super) mod gkd;
mod in_backward;
mod kept_whole;
mod kernels;
mod low_rank;
mod offload;
mod pipeline;
pub(super) mod ppo;
mod preconditioner;
pub(super) mod preference;
mod quantization;
mod reasons;
mod router_loss;
pub(super) mod seq2seq;
mod shards;
mod stage_replicas;
mod task;
mod tensor_plan;
pub(super) mod trainer;
mod trl_ranks;
mod vision;

pub(crate) use pipeline::{runs_pytorch_schedule, why_approximate};
pub(crate) use task::is_hrm;
pub(super) use task::{
    has_classification_head, has_decoder_head, has_logits_for_labels, has_masked_lm_head, is_decoder, leaves_logits_out,
};

use super::settings::{Origin, Settings};
use super::{
    Attention, Framework, JobError, JobErrorKind, JobSpec, LossKernel, LossOf, ModelSpec, Precision, Strategy,
    TaskName, own_class,
};
use crate::job::keys;
use crate::model_type::{BeyondPositions, Liger, with_liger_layers};

/// More tokens than any GPU holds; the bound keeps products of sizes inside a `u64`.
const MAX_TOKENS_PER_PASS: u64 = 1 << 32;
/// The highest rank of an adapter.
const MAX_RANK: u64 = 1 << 16;

/// Positions the model has by its config, or by its config class's default where rows beyond them stop.
pub(super) fn model_positions(model: &ModelSpec) -> Option<u64> {
    let facts = model.facts();
    let written = facts.positions_keys.iter().find_map(|key| model.of_tokens().get(key)?.as_u64());
    let positions = written.filter(|positions| *positions > 0).or(facts.default_positions);
    let padding = model.config.token("pad_token_id", Some(1)).filter(|_| facts.padding_positions);
    positions.map(|positions| positions.saturating_sub(padding.map_or(0, |padding| padding + 1)).max(1))
}

/// Tokens of the rows that the model was published for: one length, or its positions.
pub(super) fn row_length(model: &ModelSpec) -> Option<u64> {
    let row = model.facts().row_key.and_then(|key| model.config.get(key)?.as_u64());
    row.or_else(|| model_positions(model))
}

/// Refuses what PyTorch would refuse, and sizes beyond any machine.
pub(crate) fn check_possible(job: &JobSpec) -> Result<(), JobError> {
    fits_sizes(job)?;
    fits_transformers(job)?;
    fits_positions(job)?;
    fits_image(job)?;
    task::check_task(job)?;
    flash_attn::check_flash_attn(job)?;
    fits_padding_free(job)?;
    trainer::fits_ranks(job)?;
    agi2::check_agi2(job)?;
    fits_loss(job)?;
    fits_head_of_sft(job)?;
    fits_liger_layers(job)?;
    kernels::check_kernels(job)?;
    quantization::check_quantization(job)?;
    adapters::check_adapters(job)?;
    router_loss::check_router_loss(job)?;
    compiled_step::check_compiled_step(job)?;
    in_backward::fits_in_backward(job)?;
    in_backward::fits_fused_backward(job)?;
    ema::check_ema(job)?;
    low_rank::fits_low_rank(job)?;
    preconditioner::fits_preconditioner(job)?;
    vision::check_vision(job)?;
    kept_whole::check_kept_whole(job)?;
    tensor_plan::fits_tensor_plan(job)?;
    pipeline::fits_pipeline(job)?;
    context_parallel::fits_context_parallel(job)?;
    fits_lora(job)
}

/// Refuses rows end to end where SFTTrainer's loop is not what is simulated.
fn fits_padding_free(job: &JobSpec) -> Result<(), JobError> {
    let is_simulated =
        matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_) | Strategy::TensorParallel { .. });
    if job.padding_free && !is_simulated {
        let problem = format!("`{}` is not simulated with a model that is sharded or split", keys::PADDING_FREE);
        return Err(JobError::of_kind(JobErrorKind::Unsimulated, problem)
            .about(&[keys::PADDING_FREE])
            .hint("leave it out: rows are then simulated as of one length")
            .or_rehearse());
    }
    Ok(())
}

/// What the answer must say about the job.
pub(super) fn all_notes(job: &JobSpec, settings: &Settings, published_dtype: Option<&str>) -> Vec<String> {
    let defaulted =
        |key: &'static str| settings.get(key).is_none_or(|setting| matches!(setting.origin, Origin::Default(_)));
    let notes = [
        published_dtype.filter(|_| defaulted(keys::PRECISION) && job.task.swarm().is_some()).and_then(published_note),
        one_rank(job, &defaulted),
        native_bf16(job),
        beyond_positions(job),
        cache_and_checkpointing(job),
        liger_does_nothing(job),
    ];
    notes.into_iter().flatten().chain(agi2::agi2_notes(job)).chain(own_class::notes(&job.model)).collect()
}

/// A strategy that somebody named for ranks that nobody counted.
fn one_rank(job: &JobSpec, defaulted: &dyn Fn(&'static str) -> bool) -> Option<String> {
    let is_alone =
        job.parallel.strategy != Strategy::None && job.parallel.world_size == 1 && defaulted(keys::WORLD_SIZE);
    is_alone.then(|| "one process has nothing to share: --world-size says how many ranks there are".to_owned())
}

/// The most tokens that the job runs through at once or in a row; saturates.
fn total_tokens(job: &JobSpec) -> u64 {
    let new_tokens = if job.task.name() == TaskName::Generate { job.max_new_tokens } else { 0 };
    job.seq_len.saturating_add(new_tokens)
}

fn fits_sizes(job: &JobSpec) -> Result<(), JobError> {
    let sizes = [
        (keys::MICRO_BATCH_SIZE, job.micro_batch_size),
        (keys::SEQ_LEN, job.seq_len),
        (keys::GRADIENT_ACCUMULATION_STEPS, job.gradient_accumulation_steps),
        (keys::STEPS, u64::from(job.steps)),
        (keys::LORA_R, job.lora.as_ref().map_or(1, |lora| lora.r)),
        ("gpu.multiprocessors", job.gpu.multiprocessors),
    ];
    if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return Err(JobError::new(format!("`{key}` must be at least 1, found 0")).about(&[key]));
    }
    if job.micro_batch_size.saturating_mul(total_tokens(job)) > MAX_TOKENS_PER_PASS {
        return Err(JobError::new(format!(
            "`micro_batch_size` {} times {} tokens of `seq_len` and `max_new_tokens` is more than a GPU can hold",
            job.micro_batch_size,
            total_tokens(job)
        ))
        .about(&[keys::MICRO_BATCH_SIZE, keys::SEQ_LEN, keys::MAX_NEW_TOKENS])
        .hint("lower `micro_batch_size` or `seq_len`"));
    }
    Ok(())
}

fn fits_transformers(job: &JobSpec) -> Result<(), JobError> {
    let (version, model_type) = (job.transformers, job.model.model_type.as_str());
    let first = job.model.facts().first_version();
    if version < first {
        let problem = format!("`transformers` {version}: `{model_type}` is simulated from {first} on");
        return Err(JobError::new(problem).about(&[keys::TRANSFORMERS]).hint(format!(
            "set transformers = \"{first}\" or newer; `tonnage rehearse -- COMMAND` runs an older one itself"
        )));
    }
    if job.model.facts().has_experts && version.has_experts_between() {
        let problem = format!(
            "`transformers` {version}: mixtures of experts are simulated from 5.17 on, and `{model_type}` from {first}"
        );
        return Err(JobError::new(problem)
            .about(&[keys::TRANSFORMERS])
            .hint("set transformers = \"5.17\", or for Mixtral \"4.51\" or \"4.48\"")
            .or_rehearse());
    }
    if job.attention != Attention::Eager && !job.model.facts().has_sdpa_in(version) {
        let problem = format!("`attention`: `{model_type}` of transformers {version} has no SDPA");
        return Err(JobError::new(problem)
            .about(&[keys::ATTENTION])
            .hint("set attention = \"eager\", which it then takes by default"));
    }
    Ok(())
}

fn fits_positions(job: &JobSpec) -> Result<(), JobError> {
    let stops = job.model.facts().beyond_positions == BeyondPositions::Stops;
    match model_positions(&job.model) {
        Some(positions) if stops && total_tokens(job) > positions => Err(JobError::new(format!(
            "{} tokens are more than the {positions} positions of {}",
            total_tokens(job),
            job.model.name
        ))
        .about(&[keys::SEQ_LEN, keys::MAX_NEW_TOKENS])
        .hint(match positions.saturating_sub(job.max_new_tokens) {
            0 => format!("set `max_new_tokens` below {positions}"),
            room => format!("set `seq_len` to {room} or less"),
        })),
        _ => Ok(()),
    }
}

/// An image has as many tokens as its config says, and none that is padding.
fn fits_image(job: &JobSpec) -> Result<(), JobError> {
    let image = job.model.image().map_err(|error| JobError::from(error).about(&[keys::MODEL]))?;
    match image {
        Some(image) if image.tokens() != job.seq_len => Err(JobError::new(format!(
            "`seq_len` = {}: an image of {} by {} pixels is {} tokens to {}",
            job.seq_len,
            image.sides[0],
            image.sides[1],
            image.tokens(),
            job.model.name
        ))
        .about(&[keys::SEQ_LEN])
        .hint("leave it out; model.image_size says how large images are")),
        Some(_) if job.padded == Some(true) => {
            Err(JobError::new("`padded`: images are all of one size").about(&[keys::PADDED]).hint("leave it out"))
        }
        _ => Ok(()),
    }
}

fn fits_loss(job: &JobSpec) -> Result<(), JobError> {
    if job.logits.loss == LossKernel::Full {
        return Ok(());
    }
    if !job.model.facts().liger.fuses_loss() {
        let problem = format!("loss = \"liger\": Liger has no fused loss for `{}`", job.model.model_type);
        return Err(JobError::new(problem).about(&[keys::LOSS]).hint("set loss = \"full\"").or_rehearse());
    }
    if !job.task.trains() {
        return Err(JobError::new("loss = \"liger\": the task computes no loss")
            .about(&[keys::LOSS])
            .hint("set loss = \"full\""));
    }
    if has_head_of_sft(job) {
        return Err(JobError::new("loss = \"liger\": SFTTrainer has a fused head of its own and refuses Liger's")
            .about(&[keys::LOSS])
            .hint(
                "leave out `loss`; use_liger_kernel = true replaces the layers there, or set framework = \"trainer\"",
            ));
    }
    Ok(())
}

/// Whether SFTTrainer's head takes the logits' place.
fn has_head_of_sft(job: &JobSpec) -> bool {
    job.framework == Framework::Trl && job.task.facts().loss() == LossOf::NextToken
}

/// SFTTrainer's head is given the tokens that have one before them.
fn fits_head_of_sft(job: &JobSpec) -> Result<(), JobError> {
    if !has_head_of_sft(job) || job.seq_len > 1 {
        return Ok(());
    }
    let problem = "seq_len = 1: a row of one token has none to predict, so that SFTTrainer's loss is of nothing";
    Err(JobError::new(problem).about(&[keys::SEQ_LEN]).hint("take rows of 2 tokens at least"))
}

/// Liger's layers are simulated where they are known, and nowhere left out silently.
fn fits_liger_layers(job: &JobSpec) -> Result<(), JobError> {
    let model_type = &job.model.model_type;
    let Liger::LayersNotKnown { fuses_loss } = job.model.facts().liger else { return Ok(()) };
    if !job.liger_kernels {
        return Ok(());
    }
    let loss = match (job.task.facts().loss(), fuses_loss) {
        (LossOf::NextToken, true) => "set loss = \"liger\" for its fused loss without its layers, or ",
        _ => "",
    };
    let problem = format!("`use_liger_kernel`: the layers of `{model_type}` are not known with Liger's kernels");
    Err(JobError::new(problem).about(&[keys::USE_LIGER_KERNEL]).hint(format!(
        "known are those of {}; {loss}`tonnage rehearse -- COMMAND` runs the script itself",
        with_liger_layers().join(", ")
    )))
}

/// What it does to a model that it has nothing for.
fn liger_does_nothing(job: &JobSpec) -> Option<String> {
    (job.liger_kernels && job.model.facts().liger == Liger::Untouched).then(|| {
        format!("Liger has no kernels for `{}`: with `use_liger_kernel` it trains as without", job.model.model_type)
    })
}

fn fits_lora(job: &JobSpec) -> Result<(), JobError> {
    let Some(lora) = &job.lora else { return Ok(()) };
    if !(0.0..1.0).contains(&lora.dropout) {
        return Err(JobError::new(format!("`lora.dropout` must be from 0 to below 1, found {}", lora.dropout))
            .about(&[keys::LORA_DROPOUT]));
    }
    if lora.r > MAX_RANK {
        return Err(
            JobError::new(format!("`lora.r` must be at most {MAX_RANK}, found {}", lora.r)).about(&[keys::LORA_R])
        );
    }
    if lora.targets.is_empty() {
        return Err(JobError::new("`lora.targets` is empty")
            .about(&[keys::LORA_TARGETS])
            .hint("name layers, or set it to \"all-linear\""));
    }
    Ok(())
}

fn published_note(dtype: &str) -> Option<String> {
    let precision = match dtype {
        "bfloat16" => "bf16",
        "float16" => "fp16",
        _ => return None,
    };
    Some(format!(
        "estimated in fp32, PyTorch's default; from_pretrained of transformers 5 loads these weights in {dtype}: set \
         precision = \"{precision}\" for that"
    ))
}

fn native_bf16(job: &JobSpec) -> Option<String> {
    let bf16 = matches!(job.precision, Precision::Bf16 | Precision::AmpBf16);
    (bf16 && job.gpu.compute_capability < (8, 0))
        .then(|| format!("{} has no bf16 units: PyTorch emulates it there, slowly", job.gpu.name))
}

fn beyond_positions(job: &JobSpec) -> Option<String> {
    let follow = job.model.facts().beyond_positions == BeyondPositions::FollowRows;
    let positions = model_positions(&job.model).filter(|_| !follow)?;
    (total_tokens(job) > positions)
        .then(|| format!("{} tokens go beyond the {positions} positions of {}", total_tokens(job), job.model.name))
}

fn cache_and_checkpointing(job: &JobSpec) -> Option<String> {
    let both = job.use_cache && job.train_mode && job.turns_cache_off();
    both.then(|| "with gradient checkpointing transformers turns `use_cache` off in training".to_owned())
}
