//! What no job of images and their texts may ask for: activations beyond any memory, which the outer config, in which nothing is wide, does
//! not show.

use serde_json::Value;

use crate::building::BuildError;
use crate::job::{Attention, Fields, JobError, JobSpec, PairTower, keys};
use crate::model::family::bounds::MAX_ELEMENTS;

/// Refuses such a job. Of other models nothing is asked.
pub(in crate::family) fn bound_pairs(job: &JobSpec) -> Result<(), BuildError> {
    let Some(image) = job.model.pair_image()? else { return Ok(()) };
    let rows = u128::from(job.micro_batch_size);
    let mut largest = (rows * u128::from(image.numbers())).max(rows * rows);
    for (tower, tokens) in [(PairTower::Text, job.seq_len), (PairTower::Vision, image.tokens())] {
        let fields = job.model.pair_tower(tower)?;
        largest = largest.max((rows * u128::from(tokens)).saturating_mul(widest(&fields, tokens, job.attention)));
    }
    if largest <= MAX_ELEMENTS {
        return Ok(());
    }
    let key = keys::MICRO_BATCH_SIZE;
    let problem = format!("`{key}`: {rows} pairs make a tensor of {largest} elements; no GPU holds it");
    Err(JobError::new(problem).about(&[key]).hint(format!("lower `{key}`")).into())
}

/// Numbers of a token where a tower is widest: of its MLP, or of its scores where they are held.
fn widest(fields: &Fields, tokens: u64, attention: Attention) -> u128 {
    let size = |key: &str, default: u64| u128::from(fields.get(key).and_then(Value::as_u64).unwrap_or(default));
    let heads = if attention == Attention::Eager { size("num_attention_heads", 16) } else { 0 };
    size("hidden_size", 1024).max(size("intermediate_size", 4096)).max(heads.saturating_mul(tokens.into()))
}
