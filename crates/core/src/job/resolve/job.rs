//! Decides the keys of a job one after the other, in the order of the table. The version of transformers comes early: defaults depend on it.

use super::chooser::Chooser;
use super::quantization::resolve_quantization;
use super::{data, embedding, gkd, ppo, preference, ranks, trainer, vision};
use crate::alloc::AllocatorConfig;
use crate::job::keys;
use crate::job::model_source::Model;
use crate::job::{
    Attention, Baseline, CheckpointPolicy, ClipSpec, DiffusionSpec, Framework, Head, JobError, JobSource, JobSpec,
    Kernels, LogitsPath, ModelSpec, OptimizerKind, Parallel, RunSpec, Seq2SeqSpec, Strategy, Task, TaskName,
    TransformersVersion, check,
};
use crate::model_type::{ModelKind, ModelType, NEVER};

/// The job that the settings describe.
pub(super) fn resolve_job(choose: &mut Chooser<'_>, model: Model, source: &JobSource) -> Result<JobSpec, JobError> {
    let model_type = model.spec.model_type.clone();
    let name: TaskName =
        choose.word_or(keys::TASK, default_task(&model.spec), &format!("what a {model_type} model is trained on"))?;
    let framework = resolve_framework(choose, name, model.spec.is_in_transformers())?;
    trainer::set_defaults(choose, name, framework, &model)?;
    let model = model.spec;
    let micro_batch_size = ranks::resolve_rows(choose, name)?;
    let lengths = Lengths::take_lengths(choose, name, &model);
    let accumulation = ranks::resolve_accumulation(choose, micro_batch_size)?;
    let (is_in_transformers, facts) = (model.is_in_transformers(), model.facts());
    let [liger_kernels, fuses] = liger_kernels(choose, (name, framework), &model);
    let transformers = if is_in_transformers { choose.take_transformers()? } else { TransformersVersion::DEFAULT };
    let mut job = JobSpec {
        framework,
        micro_batch_size,
        seq_len: lengths.seq_len,
        max_new_tokens: lengths.max_new_tokens,
        gradient_accumulation_steps: accumulation,
        materialized: false,
        places_first: false,
        precision: choose.take_word(keys::PRECISION)?,
        attention: resolve_attention(choose, &model)?,
        gradient_checkpointing: checkpoint_policy(choose.take_switch(keys::GRADIENT_CHECKPOINTING)),
        use_reentrant: false,
        activation_offload: data::activation_offload(choose, updates_weights(name))?,
        optimizer: resolve_optimizer(choose, framework)?,
        decays: choose.said_number(keys::WEIGHT_DECAY).is_some_and(|decay| decay > 0.0),
        low_rank: choose.take_low_rank()?,
        preconditioner: choose.take_preconditioner()?,
        optimizer_in_backward: choose.switch_if_said(keys::OPTIMIZER_IN_BACKWARD),
        ema: choose.word_if_said(keys::EMA)?.unwrap_or_default(),
        clip_grad_norm: resolve_clip(choose),
        zero_grad_set_to_none: choose.take_switch(keys::ZERO_GRAD_SET_TO_NONE),
        train_mode: resolve_train_mode(choose, name),
        own_labels: data::own_labels(choose, name, framework, source)?,
        padded: data::padded(choose, name)?,
        padding_free: data::padding_free(choose, name, framework)?,
        row_growth: data::row_growth(choose, &model.model_type, lengths.seq_len)?,
        model: overridden(choose, model),
        use_cache: resolve_cache(choose, transformers, facts),
        logits: resolve_logits(choose, fuses)?,
        steps: u32::try_from(choose.take_size(keys::STEPS)).unwrap_or(u32::MAX),
        transformers,
        device_map: is_in_transformers && choose.take_switch(keys::DEVICE_MAP),
        gpu: choose.take_gpu()?,
        lora: choose.take_lora(&model_type)?,
        quantization: None,
        task: resolve_task(choose, name, (&lengths, facts.kind), (micro_batch_size, accumulation), source)?,
        liger_kernels,
        kernels: resolve_kernels(choose)?,
        parallel: Parallel::default(),
        run: RunSpec::default(),
        left_open: source.left_open.clone(),
        allocator: AllocatorConfig::default(),
    };
    resolve_rest(choose, &mut job, name, micro_batch_size).map(|()| job)
}

/// The model with what was said of its config.
fn overridden(choose: &mut Chooser<'_>, mut model: ModelSpec) -> ModelSpec {
    choose.model_overrides(&mut model);
    model
}

/// Whether the task takes optimizer steps.
const fn updates_weights(name: TaskName) -> bool {
    !matches!(name, TaskName::InferenceForward | TaskName::Generate)
}

fn resolve_train_mode(choose: &mut Chooser, name: TaskName) -> bool {
    choose.switch_or(keys::TRAIN_MODE, updates_weights(name), "training mode when the task trains")
}

fn resolve_clip(choose: &mut Chooser) -> Option<ClipSpec> {
    let max_norm = choose.take_number(keys::CLIP_GRAD_NORM);
    (max_norm > 0.0).then_some(ClipSpec { max_norm })
}

/// Whether a cache of keys and values is returned, as the config says where this version leaves that alone.
fn resolve_cache(choose: &mut Chooser, transformers: TransformersVersion, facts: &ModelType) -> bool {
    if facts.hands_keys_on_in(transformers) {
        choose.switch_or(keys::USE_CACHE, true, "its config's, which this transformers leaves on")
    } else {
        choose.take_switch(keys::USE_CACHE)
    }
}

/// transformers' default, of a class that has no SDPA its own products and softmax.
fn resolve_attention(choose: &mut Chooser, model: &ModelSpec) -> Result<Attention, JobError> {
    if model.facts().sdpa_since == Some(NEVER) {
        return choose.word_or(keys::ATTENTION, "eager", "the model has no SDPA");
    }
    choose.take_word(keys::ATTENTION)
}

/// What follows from values that are decided already.
fn resolve_rest(choose: &mut Chooser<'_>, job: &mut JobSpec, name: TaskName, rows: u64) -> Result<(), JobError> {
    job.model.stand_head(&job.task);
    vision::resolve_vision(choose, &mut job.model)?;
    job.quantization = resolve_quantization(choose, job)?;
    // bitsandbytes' quantizer loads to the GPU whatever was asked for.
    job.device_map |= job.quantization.is_some();
    let size = |key: &str| job.model.config.get(key).and_then(serde_json::Value::as_u64);
    let hidden_size = ["hidden_size", "n_embd"].into_iter().find_map(size);
    job.parallel = ranks::resolve_parallel(choose, name, (job.framework, looks_for_unused(job)), hidden_size)?;
    job.use_reentrant = resolve_reentrant(choose, job)?;
    job.run = choose.take_run()?;
    job.allocator = choose.take_allocator()?;
    job.micro_batch_size = job.task.swarm().map_or(rows, |swarm| swarm.train_rows);
    Ok(())
}

/// Whether Liger's kernels take the place of the model's own loss.
fn fuses_loss(name: TaskName, framework: Framework, model: &ModelSpec) -> bool {
    name == TaskName::CausalLm && framework != Framework::Trl && model.facts().liger.fuses_loss()
}

/// Whether the trainer applies Liger's kernels, and whether they bring their loss; where nothing does, a key that nothing reads is
/// refused.
fn liger_kernels(choose: &mut Chooser<'_>, (task, framework): (TaskName, Framework), model: &ModelSpec) -> [bool; 2] {
    let applies = task.has_labels() || (Framework::usual(task) == Framework::Trl && task != TaskName::Reward);
    let applied = applies && choose.is_said(keys::USE_LIGER_KERNEL) && choose.take_switch(keys::USE_LIGER_KERNEL);
    [applied, applied && fuses_loss(task, framework, model)]
}

/// Whether layers are recomputed with `use_reentrant=True`, which older transformers take where nothing is said.
fn resolve_reentrant(choose: &mut Chooser<'_>, job: &JobSpec) -> Result<bool, JobError> {
    if job.gradient_checkpointing == CheckpointPolicy::Off || !job.model.is_in_transformers() || !job.task.trains() {
        return Ok(false);
    }
    let is_simulated = match job.parallel.strategy {
        Strategy::None | Strategy::Ddp(_) => true,
        Strategy::Fsdp1(_) => job.transformers.recomputes_wrappers(),
        _ => false,
    };
    let is_plain = job.activation_offload.is_none() && job.task.name() == TaskName::CausalLm;
    let default = job.transformers.is_before_5() && is_simulated && is_plain;
    let reenters = choose.switch_or(keys::USE_REENTRANT, default, "the default of this version of transformers");
    if reenters && !(is_simulated && is_plain) {
        return Err(JobError::new("use_reentrant = true is simulated in plain training, on one GPU, with DDP or, before transformers 4.52, FSDP1")
            .about(&[keys::USE_REENTRANT])
            .hint("leave it out")
            .or_rehearse());
    }
    Ok(reenters)
}

/// Kernels of other programs, if anybody named some.
fn resolve_kernels(choose: &mut Chooser<'_>) -> Result<Kernels, JobError> {
    if !choose.is_said(keys::KERNELS) {
        return Ok(Kernels::default());
    }
    let named = choose.take_value(keys::KERNELS, Vec::<&str>::new().into(), "none");
    Kernels::of_names(named.as_array().into_iter().flatten().filter_map(serde_json::Value::as_str))
}

/// Whether a trainer asks DDP to look for unused parameters (transformers 5.17, trainer.py): adapters make the model none of
/// its own, and recomputing forbids it. SFTTrainer always asks where rows have images, of which a batch may have none.
fn looks_for_unused(job: &JobSpec) -> bool {
    let is_trainer = matches!(job.framework, Framework::Trainer | Framework::Trl);
    let sees_images = job.framework == Framework::Trl && job.model.beside.vision.is_some();
    is_trainer && (job.lora.is_some() || sees_images || job.gradient_checkpointing == CheckpointPolicy::Off)
}

/// What becomes of the logits; `fuses`: whether Liger's kernels bring their loss.
fn resolve_logits(choose: &mut Chooser<'_>, fuses: bool) -> Result<LogitsPath, JobError> {
    let (loss, why) = if fuses { ("liger", "what use_liger_kernel brings") } else { ("full", "transformers' default") };
    Ok(LogitsPath {
        keep_outputs: choose.take_switch(keys::KEEP_OUTPUTS),
        logits_to_keep: Some(choose.take_size(keys::LOGITS_TO_KEEP)).filter(|positions| *positions > 0),
        loss: choose.word_or(keys::LOSS, loss, why)?,
    })
}

/// What the optimizer's word means to the program that trains. schedulefree's RAdam comes to its full step in the third of those simulated.
fn resolve_optimizer(choose: &mut Chooser<'_>, framework: Framework) -> Result<OptimizerKind, JobError> {
    let said: OptimizerKind = choose.take_word(keys::OPTIMIZER)?;
    if said == OptimizerKind::ScheduleFreeRadam {
        choose.trainer.push((keys::STEPS, "3".to_owned(), "RAdam's variance is tractable then".to_owned()));
    }
    let is_trainer = matches!(framework, Framework::Trainer | Framework::Trl);
    Ok(if is_trainer { said.in_trainer() } else { said })
}

/// What trains: said, or what most train such a task with.
fn resolve_framework(choose: &mut Chooser<'_>, task: TaskName, in_transformers: bool) -> Result<Framework, JobError> {
    // Others' models have a loop of their own.
    let usual = if in_transformers || task == TaskName::Diffusion { Framework::usual(task) } else { Framework::Loop };
    let usual = serde_json::to_value(usual).unwrap_or_default();
    choose.word_or(keys::FRAMEWORK, usual.as_str().unwrap_or_default(), "what most train such a task with")
}

fn resolve_task(
    choose: &mut Chooser<'_>,
    name: TaskName,
    (lengths, kind): (&Lengths, ModelKind),
    (rows, accumulation): (u64, u64),
    source: &JobSource,
) -> Result<Task, JobError> {
    Ok(match name {
        TaskName::CausalLm => Task::CausalLm,
        TaskName::MaskedLm => Task::MaskedLm,
        TaskName::Seq2SeqLm => {
            let target_len = choose.take_size(keys::TARGET_LEN);
            let freeze_encoder = lengths.is_recording && choose.take_switch(keys::FREEZE_ENCODER);
            Task::Seq2SeqLm(Seq2SeqSpec { target_len, freeze_encoder })
        }
        TaskName::SequenceClassification => Task::SequenceClassification,
        TaskName::TokenClassification => Task::TokenClassification,
        TaskName::ImageClassification => Task::ImageClassification,
        TaskName::InferenceForward => Task::InferenceForward,
        TaskName::Generate => Task::Generate,
        TaskName::Hrm => Task::Hrm,
        TaskName::Diffusion => Task::Diffusion(DiffusionSpec {
            resolution: choose.take_size(keys::RESOLUTION),
            cache_latents: choose.take_switch(keys::CACHE_LATENTS),
            cache_text_embeddings: choose.take_switch(keys::CACHE_TEXT_EMBEDDINGS),
        }),
        TaskName::Grpo => trainer::resolve_grpo(choose, lengths, (Baseline::Group, accumulation), source)?,
        TaskName::Rloo => trainer::resolve_grpo(choose, lengths, (Baseline::LeaveOneOut, accumulation), source)?,
        TaskName::Dpo => trainer::resolve_dpo(choose, lengths),
        TaskName::Kto => preference::resolve_kto(choose, lengths, rows)?,
        TaskName::Gkd => gkd::resolve_gkd(choose, lengths, source)?,
        TaskName::Ppo => ppo::resolve_ppo(choose, lengths, source)?,
        TaskName::Orpo => preference::resolve_orpo(lengths),
        TaskName::Cpo => preference::resolve_cpo(choose, lengths)?,
        TaskName::Reward => trainer::resolve_reward(choose),
        TaskName::Contrastive => Task::Contrastive,
        TaskName::Embedding => embedding::resolve_embedding(choose, lengths, kind)?,
        TaskName::Swarm => trainer::resolve_swarm(choose, lengths)?,
    })
}

fn default_task(model: &ModelSpec) -> &'static str {
    match (model.facts().kind, model.beside.head) {
        (ModelKind::Puzzle, _) => "hrm",
        (ModelKind::ImageText, _) => "contrastive",
        (ModelKind::Denoiser, _) => "diffusion",
        (ModelKind::Image, _) | (_, Head::ImageClassification) => "image_classification",
        (ModelKind::Decoder, Head::LanguageModel) => "causal_lm",
        (ModelKind::MaskedLm, Head::LanguageModel) => "masked_lm",
        (ModelKind::EncoderDecoder, _) => "seq2seq_lm",
        (_, Head::SequenceClassification) => "sequence_classification",
        (_, Head::TokenClassification) => "token_classification",
        (_, Head::Base) => "embedding",
    }
}

/// Tokens of a row.
pub(super) struct Lengths {
    /// Tokens of a row in a training pass.
    pub seq_len: u64,
    pub max_new_tokens: u64,
    /// Those of the prompt and of the completion, where a trainer tells them apart.
    pub prompt: u64,
    pub completion: u64,
    /// Whether rows are recordings, each of one length.
    pub is_recording: bool,
}

impl Lengths {
    fn take_lengths(choose: &mut Chooser<'_>, name: TaskName, model: &ModelSpec) -> Self {
        match name {
            _ if model.facts().image.is_some() => Self::of_images(choose, model),
            _ if model.facts().hears => Self::of_recordings(choose, model),
            TaskName::Swarm => Self::of_trainer(choose),
            TaskName::Diffusion => Self::of_prompts(choose),
            _ if Framework::usual(name) == Framework::Trl && name != TaskName::Reward => Self::of_trainer(choose),
            _ => Self::of_one_model(choose, name, check::row_length(model)),
        }
    }

    fn of_one_model(choose: &mut Chooser<'_>, task: TaskName, positions: Option<u64>) -> Self {
        let new_tokens = if task == TaskName::Generate { 20 } else { 0 };
        let room =
            positions.map_or(1024, |n| n.saturating_sub(choose.said_size(keys::MAX_NEW_TOKENS).unwrap_or(new_tokens)));
        let seq_len = choose.size_or(keys::SEQ_LEN, room.clamp(1, 1024), seq_len_rule(task));
        let why = "transformers' default for generate, else none";
        let max_new_tokens = choose.size_or(keys::MAX_NEW_TOKENS, new_tokens, why);
        Self { seq_len, max_new_tokens, prompt: seq_len, completion: max_new_tokens, is_recording: false }
    }

    /// Patches stand where others have tokens.
    fn of_images(choose: &mut Chooser<'_>, model: &ModelSpec) -> Self {
        let tokens = model.image().ok().flatten().map_or(1, |image| image.tokens());
        let seq_len = choose.size_or(keys::SEQ_LEN, tokens, "the patches of an image, and a token for all of it");
        Self { seq_len, max_new_tokens: 0, prompt: seq_len, completion: 0, is_recording: false }
    }

    /// A recording has as many tokens as the encoder has positions.
    fn of_recordings(choose: &mut Chooser<'_>, model: &ModelSpec) -> Self {
        let positions = check::row_length(model).unwrap_or(1);
        let seq_len = choose.size_or(keys::SEQ_LEN, positions, "the positions of a recording");
        Self { seq_len, max_new_tokens: 0, prompt: seq_len, completion: 0, is_recording: true }
    }

    /// The tokens of a prompt, which the denoiser attends to.
    fn of_prompts(choose: &mut Chooser<'_>) -> Self {
        let prompt = choose.take_size(keys::PROMPT_LEN);
        Self { seq_len: prompt, max_new_tokens: 0, prompt, completion: 0, is_recording: false }
    }

    fn of_trainer(choose: &mut Chooser<'_>) -> Self {
        let prompt = choose.take_size(keys::PROMPT_LEN);
        let completion = choose.take_size(keys::COMPLETION_LEN);
        let seq_len = prompt.saturating_add(completion);
        Self { seq_len, max_new_tokens: 0, prompt, completion, is_recording: false }
    }
}

fn seq_len_rule(task: TaskName) -> &'static str {
    match task {
        TaskName::Generate => "1024, or what the new tokens leave of the model's positions",
        _ => "1024, or the model's positions",
    }
}

const fn checkpoint_policy(on: bool) -> CheckpointPolicy {
    if on { CheckpointPolicy::EveryLayer } else { CheckpointPolicy::Off }
}
