//! What no job may ask for: activations beyond any memory.

use super::contrastive::bound_pairs;
use super::generic_allowance;
use crate::building::BuildError;
use crate::job::{Attention, FieldError, JobError, JobSpec, keys};
use crate::model::family::bounds::MAX_ELEMENTS;

/// The most attention scores where a fused kernel never holds them all, 2^52: what is computed from them stays a `u64`.
const MAX_FUSED_SCORES: u128 = 1 << 52;
/// At least as many heads as any config class has by default.
const DEFAULT_HEADS: u64 = 64;

/// Names of a number of heads, the commonest first.
const HEADS: [&str; 3] = ["num_attention_heads", "n_head", "num_heads"];
/// Names of what is as wide as an activation.
const WIDTHS: [&str; 8] =
    ["vocab_size", "hidden_size", "intermediate_size", "n_embd", "n_inner", "n_embed", "ffn_dim", "ffn_hidden_size"];

/// Refuses a job whose activations are beyond any memory, naming the key that makes them so: of the job, or of the config.
pub(crate) fn bound_activations(job: &JobSpec) -> Result<(), BuildError> {
    bound_pairs(job)?;
    let fields = &job.model.config;
    let size = |key| fields.get(key).and_then(serde_json::Value::as_u64);
    let usual = job.model.facts().heads_key;
    let heads_key = [usual].into_iter().chain(HEADS).find(|key| size(key).is_some()).unwrap_or(usual);
    let heads = size(heads_key).unwrap_or(DEFAULT_HEADS);
    let written = job.max_new_tokens.saturating_add(job.task.target_len().unwrap_or(0));
    let row = u128::from(job.seq_len.saturating_add(written));
    let tokens = u128::from(job.micro_batch_size).saturating_mul(row);
    let activation = |key, width: u128| (key, tokens.saturating_mul(width), MAX_ELEMENTS);
    let mut tensors: Vec<_> = WIDTHS.iter().filter_map(|key| Some(activation(*key, size(key)?.into()))).collect();
    let pixels = job.model.image().ok().flatten().map_or(0, |image| image.numbers());
    tensors.push((keys::IMAGE_SIZE, u128::from(job.micro_batch_size) * u128::from(pixels), MAX_ELEMENTS));
    tensors.push(activation("head_dim", u128::from(heads) * u128::from(size("head_dim").unwrap_or(1))));
    let own_scores = generic_allowance(&job.model.model_type).is_some_and(|allowance| allowance.ignores_attention);
    let held = own_scores || matches!(job.attention, Attention::Eager | Attention::Math);
    let most = if held { MAX_ELEMENTS } else { MAX_FUSED_SCORES };
    tensors.push((heads_key, tokens.saturating_mul(row).saturating_mul(heads.into()), most));
    match tensors.into_iter().find(|(_, elements, most)| elements > most) {
        Some((key, elements, _)) if tokens > size(key).unwrap_or(0).into() => Err(too_many(job, key, elements).into()),
        Some((key, elements, _)) => {
            let problem = format!("makes a tensor of {elements} elements with {tokens} tokens; no GPU holds it");
            Err(FieldError::new(key, problem).into())
        }
        None => Ok(()),
    }
}

/// There are more tokens than `key` is wide.
fn too_many(job: &JobSpec, key: &str, elements: u128) -> JobError {
    let (rows, row) = (job.micro_batch_size, job.seq_len.saturating_add(job.max_new_tokens));
    let to_blame = if rows >= row { keys::MICRO_BATCH_SIZE } else { keys::SEQ_LEN };
    JobError::new(format!(
        "`{to_blame}`: {rows} rows of {row} tokens make a tensor of {elements} elements with `{key}`; no GPU holds it"
    ))
    .about(&[to_blame])
    .hint(format!("lower `{to_blame}`"))
}
