//! Decides the keys of trainers with several models or phases: TRL's GRPO and DPO, and a swarm's node.

use super::chooser::Chooser;
use super::job::Lengths;
use super::model_source;
use super::{ppo, preference};
use crate::job::guides::gpt_file;
use crate::job::keys;
use crate::job::model_source::Model;
use crate::job::settings::Settings;
use crate::job::{
    Baseline, DpoSpec, Framework, GrpoSpec, JobError, JobSource, JudgePhase, JudgeSpec, RewardSpec, Rollout,
    StoredWeights, SwarmLogProbs, SwarmSpec, Task, TaskName, TrlVersion,
};
use crate::model_type::{AGI2, FLUX, SD3};

/// GenRL's defaults (its trainer config, and rl-swarm's): fp32 weights, Adam, layers recomputed.
const GENRL: [(&str, &str); 4] = [
    (keys::OPTIMIZER, "\"adam\""),
    (keys::GRADIENT_CHECKPOINTING, "true"),
    (keys::PROMPT_LEN, "64"),
    (keys::COMPLETION_LEN, "256"),
];
/// `RewardConfig` of TRL 1.16 (reward_config.py, base_config.py), whose trainer loads a model by its name in fp32.
const REWARD: [(&str, &str); 4] = [
    (keys::OPTIMIZER, "\"adamw_fused\""),
    (keys::CLIP_GRAD_NORM, "1.0"),
    (keys::PRECISION, "\"amp-bf16\""),
    (keys::GRADIENT_CHECKPOINTING, "true"),
];
/// `RLOOConfig` of TRL 1.16 beyond what its trainers share.
const RLOO: [(&str, &str); 4] = [
    (keys::PRECISION, "\"amp-bf16\""),
    (keys::NUM_GENERATIONS, "2"),
    (keys::GRPO_BETA, "0.05"),
    (keys::GRPO_LOG_PROBS, "\"fused\""),
];
/// The options of diffusers' examples (examples/dreambooth/train_dreambooth_lora_flux.py and its kin).
const DIFFUSERS: [(&str, &str); 4] =
    [(keys::OPTIMIZER, "\"adamw\""), (keys::CLIP_GRAD_NORM, "1.0"), (keys::PRECISION, "\"fp32\""), (keys::LORA_R, "4")];
/// The recipe of the HRM repository, one GPU of eight.
const HRM: [(&str, &str); 2] = [(keys::OPTIMIZER, "\"adam_atan2\""), (keys::MICRO_BATCH_SIZE, "96")];

/// What holds where neither the task's trainer nor the framework says anything else.
const PLAIN: [(&str, &str, &str); 5] = [
    (keys::PRECISION, "\"fp32\"", "PyTorch's default dtype"),
    (keys::OPTIMIZER, "\"adamw\"", "torch.optim.AdamW as called without options"),
    (keys::CLIP_GRAD_NORM, "0.0", "a plain PyTorch loop does not clip"),
    (keys::GRADIENT_CHECKPOINTING, "false", "transformers' default"),
    (keys::USE_CACHE, "false", "the trainer's"),
];

/// Puts the defaults of what trains before those of the table: the task's own trainer's, then the framework's.
pub(super) fn set_defaults(
    choose: &mut Chooser<'_>,
    task: TaskName,
    framework: Framework,
    model: &Model,
) -> Result<(), JobError> {
    use TaskName::{Cpo, Gkd, Kto, Orpo, Reward, Rloo};

    if matches!(task, Kto | Orpo | Cpo | Gkd | Reward | Rloo) {
        choose.notes.push("behaviour and defaults are those of TRL 1.16".to_owned());
    }
    let (rows, why) = match task {
        TaskName::Grpo | TaskName::Dpo => {
            let trl: TrlVersion = choose.take_word(keys::TRL)?;
            let trainer = if task == TaskName::Grpo { "GRPOConfig" } else { "DPOConfig" };
            choose.notes.push(format!("behaviour and defaults are those of TRL {}", trl.name()));
            if task == TaskName::Grpo && framework == Framework::Loop {
                choose.notes.push(
                    "the program is `tonnage train`: TRL's statements, with position ids where positions are rows of a table"
                        .to_owned(),
                );
            }
            (trl.defaults(task), format!("TRL {}'s {trainer}", trl.name()))
        }
        Reward => (REWARD.to_vec(), "TRL 1.16's RewardConfig".to_owned()),
        Rloo => ([preference::SHARED.as_slice(), &RLOO].concat(), "TRL 1.16's RLOOConfig".to_owned()),
        Kto | Orpo | Cpo | Gkd => {
            let precision = (keys::PRECISION, preference_precision(task, model));
            ([preference::SHARED.as_slice(), &[precision]].concat(), "TRL 1.16's config".to_owned())
        }
        TaskName::Ppo => (ppo::PPO.to_vec(), "TRL 1.12's PPOConfig, the last".to_owned()),
        TaskName::Swarm => (GENRL.to_vec(), "GenRL's default".to_owned()),
        TaskName::Hrm => (HRM.to_vec(), "HRM's recipe: 768 rows on 8 GPUs".to_owned()),
        TaskName::Diffusion => {
            choose.notes.push("behaviour and defaults are those of diffusers' examples, 0.42".to_owned());
            (of_diffusers(&model.spec.model_type), "diffusers' examples".to_owned())
        }
        TaskName::Generate => (vec![(keys::USE_CACHE, "true")], "generate caches".to_owned()),
        TaskName::CausalLm
        | TaskName::MaskedLm
        | TaskName::Seq2SeqLm
        | TaskName::SequenceClassification
        | TaskName::TokenClassification
        | TaskName::ImageClassification
        | TaskName::Contrastive
        | TaskName::Embedding
        | TaskName::InferenceForward => (Vec::new(), String::new()),
    };
    let owned = |(key, json, why): (&'static str, &str, &str)| (key, json.to_owned(), why.to_owned());
    choose.trainer = rows.into_iter().map(|(key, json)| owned((key, json, &why))).collect();
    if model.spec.model_type == AGI2 {
        let own = gpt_file::of_the_loop().into_iter();
        choose.trainer.extend(own.map(|(key, value)| (key, value.to_string(), gpt_file::OF_AGI2.to_owned())));
    }
    choose.trainer.extend(framework.defaults(task).iter().copied().map(owned));
    choose.trainer.extend(loaded_dtype(task, model));
    choose.trainer.extend(PLAIN.map(owned));
    Ok(())
}

/// The options of diffusers' examples for a model.
fn of_diffusers(model_type: &str) -> Vec<(&'static str, &'static str)> {
    let (prompt, rows) = match model_type {
        FLUX => ("512", "4"),
        // CLIP's tokens and as many of T5's.
        SD3 => ("154", "4"),
        _ => ("77", "16"),
    };
    let of_model = [(keys::PROMPT_LEN, prompt), (keys::MICRO_BATCH_SIZE, rows)];
    [DIFFUSERS.as_slice(), &of_model].concat()
}

/// bf16 autocast, over fp32 weights, or over those that a trainer loads in the dtype that they have.
fn preference_precision(task: TaskName, model: &Model) -> &'static str {
    match model.published_dtype.as_deref() {
        Some("bfloat16") if !matches!(task, TaskName::Kto | TaskName::Gkd) => "\"bf16-amp\"",
        _ => "\"amp-bf16\"",
    }
}

/// The precision of a model that `from_pretrained` loads; the other tasks' trainers convert it or came with older versions.
fn loaded_dtype(task: TaskName, model: &Model) -> Option<(&'static str, String, String)> {
    let loads = task.has_labels()
        || matches!(task, TaskName::InferenceForward | TaskName::Generate | TaskName::Ppo | TaskName::Embedding);
    let stored_for_fp16 = model.spec.beside.stored.as_ref().is_some_and(StoredWeights::casts_to_fp16);
    let precision = match model.published_dtype.as_deref() {
        _ if !loads => return None,
        _ if stored_for_fp16 => "\"fp16\"",
        Some("bfloat16") => "\"bf16\"",
        Some("float16") => "\"fp16\"",
        _ => return None,
    };
    let why = format!("from_pretrained of transformers 5 loads {} in the dtype of its weights", model.spec.name);
    Some((keys::PRECISION, precision.to_owned(), why))
}

pub(super) fn resolve_grpo(
    choose: &mut Chooser<'_>,
    lengths: &Lengths,
    (baseline, accumulation): (Baseline, u64),
    source: &JobSource,
) -> Result<Task, JobError> {
    let num_generations = choose.take_size(keys::NUM_GENERATIONS);
    let steps_per_generation =
        choose.size_or(keys::GRPO_STEPS_PER_GENERATION, accumulation, "TRL's: gradient_accumulation_steps");
    let num_iterations = choose.take_size(keys::GRPO_NUM_ITERATIONS);
    let beta = choose.take_number(keys::GRPO_BETA);
    let log_probs = choose.take_word(keys::GRPO_LOG_PROBS)?;
    let padded = choose.take_switch(keys::GRPO_PADDED);
    let cast_lm_head_to_fp32 = choose.take_switch(keys::GRPO_CAST_LM_HEAD_TO_FP32);
    let rollout = resolve_rollout(choose)?;
    let judge = resolve_judge(choose, source)?;
    Ok(GrpoSpec {
        prompt_len: lengths.prompt,
        completion_len: lengths.completion,
        num_generations,
        steps_per_generation,
        num_iterations,
        baseline,
        beta,
        log_probs,
        rollout,
        padded,
        cast_lm_head_to_fp32,
        judge,
    }
    .into())
}

fn resolve_rollout(choose: &mut Chooser<'_>) -> Result<Rollout, JobError> {
    let default = if choose.settings.has_table("vllm") { "vllm" } else { "generate" };
    let word: String = choose.word_or(keys::GRPO_ROLLOUT, default, "vllm when a key of [vllm] is set")?;
    if word != "vllm" {
        return Ok(Rollout::Generate);
    }
    let gpu_memory_utilization = choose.take_number(keys::VLLM_GPU_MEMORY_UTILIZATION);
    let sleep_mode = choose.take_switch(keys::VLLM_SLEEP_MODE);
    Ok(Rollout::Vllm { gpu_memory_utilization, sleep_mode })
}

/// A judge exists as soon as any key of `[judge]` is set.
fn resolve_judge(choose: &mut Chooser<'_>, source: &JobSource) -> Result<Option<JudgeSpec>, JobError> {
    if !choose.settings.has_table("judge") {
        return Ok(None);
    }
    let Some(setting) = choose.settings.get(keys::JUDGE_MODEL) else { return Err(no_model(choose.settings)) };
    let model = model_source::second_model(keys::JUDGE_MODEL, setting, source)?;
    choose.take_value(keys::JUDGE_MODEL, serde_json::Value::Null, "");
    let weights = choose.take_word(keys::JUDGE_WEIGHTS)?;
    let phase: JudgePhase = choose.take_word(keys::JUDGE_PHASE)?;
    let extra_prompt_tokens = choose.take_size(keys::JUDGE_EXTRA_PROMPT_TOKENS);
    let new_tokens = match phase {
        JudgePhase::Generate => choose.take_size(keys::JUDGE_NEW_TOKENS),
        JudgePhase::Forward => 0,
    };
    let rows = choose.size_if_said(keys::JUDGE_ROWS, "all completions of a generation batch");
    let place = choose.take_word(keys::JUDGE_PLACE)?;
    Ok(Some(JudgeSpec { model, weights, phase, extra_prompt_tokens, new_tokens, rows, place }))
}

fn no_model(settings: &Settings) -> JobError {
    let set = settings.keys().find(|(key, _)| key.starts_with("judge."));
    let (key, place) =
        set.map_or(("judge", None), |(key, setting)| (key, model_source::place_of_origin(&setting.origin)));
    JobError::new(format!("`{key}` is set, but the judge has no model: its phase has nothing to run"))
        .about(&[key, keys::JUDGE_MODEL])
        .hint("name one, for example: judge.model = \"Qwen/Qwen2.5-14B\"")
        .at_place(place)
}

pub(super) fn resolve_dpo(choose: &mut Chooser<'_>, lengths: &Lengths) -> Task {
    let precompute_ref_log_probs = choose.take_switch(keys::DPO_PRECOMPUTE_REF_LOG_PROBS);
    DpoSpec { prompt_len: lengths.prompt, completion_len: lengths.completion, precompute_ref_log_probs }.into()
}

pub(super) fn resolve_reward(choose: &mut Chooser<'_>) -> Task {
    let center_rewards_coefficient = choose.take_number(keys::REWARD_CENTER_REWARDS_COEFFICIENT);
    let disable_dropout = choose.take_switch(keys::REWARD_DISABLE_DROPOUT);
    RewardSpec { center_rewards_coefficient, disable_dropout }.into()
}

pub(super) fn resolve_swarm(choose: &mut Chooser<'_>, lengths: &Lengths) -> Result<Task, JobError> {
    let nodes = choose.take_size(keys::SWARM_NODES);
    let gpus = choose.take_size(keys::SWARM_GPUS);
    let lease = choose.size_if_said(keys::SWARM_LEASE, "every node at once");
    let local_questions = choose.take_size(keys::SWARM_LOCAL_QUESTIONS);
    let external_questions = choose.take_size(keys::SWARM_EXTERNAL_QUESTIONS);
    let num_generations = choose.take_size(keys::NUM_GENERATIONS);
    let why = "GenRL's: one completion of each local question at a time";
    let generate_rows = choose.size_or(keys::SWARM_GENERATE_ROWS, local_questions, why);
    let kind: String = choose.take_word(keys::SWARM_LOG_PROBS)?;
    let log_probs = match kind.as_str() {
        "chunked" => SwarmLogProbs::Chunked { rows: choose.take_size(keys::SWARM_ROWS_PER_CHUNK) },
        "chunked_head" => SwarmLogProbs::ChunkedHead { rows: choose.take_size(keys::SWARM_ROWS_PER_CHUNK) },
        _ => SwarmLogProbs::Full,
    };
    let logits_to_keep = choose.take_switch(keys::SWARM_LOGITS_TO_KEEP);
    let empty_cache = choose.take_switch(keys::SWARM_EMPTY_CACHE);
    Ok(SwarmSpec {
        prompt_len: lengths.prompt,
        completion_len: lengths.completion,
        local_questions,
        external_questions,
        num_generations,
        train_rows: local_questions.saturating_add(external_questions).saturating_mul(num_generations),
        generate_rows,
        log_probs,
        logits_to_keep,
        generates: local_questions > 0,
        empty_cache,
        nodes,
        gpus,
        lease,
    }
    .into())
}
