//! What a job's values must be together, and what the answer must say about them.

use super::settings::{Origin, Settings};
use super::{CheckpointPolicy, JobSpec, ModelSpec, Precision, SpecError, Task};

/// Families with a learned table of positions: a longer row reads past it, and PyTorch stops.
const LEARNED_POSITIONS: [&str; 2] = ["gpt2", "bert"];
/// More tokens than any GPU holds; the bound keeps products of sizes inside a `u64`.
const MAX_TOKENS_PER_PASS: u64 = 1 << 32;

/// Positions the model has by its config, or by its config class's default where that is a learned table.
pub(super) fn positions(model: &ModelSpec) -> Option<u64> {
    let written = ["n_positions", "max_position_embeddings"].iter().find_map(|key| model.config.get(key)?.as_u64());
    written.filter(|positions| *positions > 0).or(match model.model_type.as_str() {
        "gpt2" => Some(1024),
        "bert" => Some(512),
        _ => None,
    })
}

/// The dropout probabilities in the config class of `model_type` (transformers 5.17).
pub(super) fn dropout_fields(model_type: &str) -> &'static [&'static str] {
    match model_type {
        "gpt2" => &["resid_pdrop", "embd_pdrop", "attn_pdrop"],
        "bert" => &["hidden_dropout_prob", "attention_probs_dropout_prob"],
        "phi3" => &["resid_pdrop", "embd_pdrop", "attention_dropout"],
        _ => &["attention_dropout"],
    }
}

/// peft's target modules (0.18, `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`); empty where it knows none.
pub(super) fn lora_targets(model_type: &str) -> Vec<&'static str> {
    match model_type {
        "gpt2" => vec!["c_attn"],
        "bert" => vec!["query", "value"],
        "llama" | "mistral" | "qwen2" | "qwen3" | "gemma2" | "gemma3_text" => vec!["q_proj", "v_proj"],
        _ => Vec::new(),
    }
}

/// Refuses what PyTorch would refuse; returns what the answer must say.
pub(super) fn job(job: &JobSpec, settings: &Settings, published_dtype: Option<&str>) -> Result<Vec<String>, SpecError> {
    fits_positions(job)?;
    fits_task(job)?;
    if job.micro_batch_size.saturating_mul(job.seq_len) > MAX_TOKENS_PER_PASS {
        return Err(SpecError::new(format!(
            "`micro_batch_size` {} times `seq_len` {} is more tokens than a GPU can hold",
            job.micro_batch_size, job.seq_len
        )));
    }
    let defaulted = |key| settings.get(key).is_none_or(|setting| matches!(setting.origin, Origin::Default(_)));
    let notes = [
        defaulted("gpu").then(|| format!("no GPU was named: judged against {}", job.gpu.name)),
        published_dtype.filter(|_| defaulted("precision")).and_then(published_note),
        native_bf16(job),
        beyond_positions(job),
        cache_and_checkpointing(job),
    ];
    Ok(notes.into_iter().flatten().collect())
}

fn total_tokens(job: &JobSpec) -> u64 {
    job.seq_len.saturating_add(job.max_new_tokens)
}

fn fits_positions(job: &JobSpec) -> Result<(), SpecError> {
    let learned = LEARNED_POSITIONS.contains(&job.model.model_type.as_str());
    match positions(&job.model) {
        Some(positions) if learned && total_tokens(job) > positions => Err(SpecError::new(format!(
            "{} tokens are more than the {positions} positions of {}",
            total_tokens(job),
            job.model.name
        ))
        .hint(match positions.saturating_sub(job.max_new_tokens) {
            0 => format!("set `max_new_tokens` below {positions}"),
            room => format!("set `seq_len` to {room} or less"),
        })),
        _ => Ok(()),
    }
}

fn fits_task(job: &JobSpec) -> Result<(), SpecError> {
    let bert = job.model.model_type == "bert";
    match job.task {
        Task::MaskedLm if !bert => Err(SpecError::new(format!("`{}` has no masked-LM head", job.model.model_type))
            .hint("set task = \"causal_lm\"")),
        Task::CausalLm | Task::Generate if bert => {
            Err(SpecError::new("BERT is no decoder").hint("set task = \"masked_lm\" or \"inference_forward\""))
        }
        Task::CausalLm | Task::MaskedLm if job.logits.logits_to_keep.is_some() => {
            Err(SpecError::new("`logits_to_keep` leaves training without logits for its labels")
                .hint("leave it out, or set loss = \"liger\" to save the logits' memory"))
        }
        Task::Generate if job.max_new_tokens == 0 => {
            Err(SpecError::new("`max_new_tokens` is 0: nothing is generated").hint("set it to 1 or more"))
        }
        _ => Ok(()),
    }
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
    let positions = positions(&job.model)?;
    (total_tokens(job) > positions)
        .then(|| format!("{} tokens go beyond the {positions} positions of {}", total_tokens(job), job.model.name))
}

fn cache_and_checkpointing(job: &JobSpec) -> Option<String> {
    let both = job.use_cache && job.gradient_checkpointing == CheckpointPolicy::EveryLayer && job.train_mode;
    both.then(|| "with gradient checkpointing transformers turns `use_cache` off in training".to_owned())
}
