//! The hierarchical reasoning model (sapientinc/HRM at its first release, run eagerly): not a language model but a
//! recurrent solver of puzzles, with a forward pass, a loss head and a training step of its own.

mod config;
mod layers;
mod loss;
mod model;

use crate::job::{FieldError, Fields};
use crate::nn::Builder;

use config::Config;

pub(crate) use layers::CastedSparseEmbedding;
pub(crate) use loss::{ActLossHead, Results};
pub(crate) use model::{Batch, Carry};

/// Its `model_type`.
pub(crate) const MODEL_TYPE: &str = "hrm";

/// Builds the model with its loss head on the device, for batches of `rows` rows of `tokens` tokens.
pub(crate) fn build(fields: &Fields, at: &Builder, rows: u64, tokens: u64) -> Result<ActLossHead, FieldError> {
    Ok(ActLossHead::new(at, Config::read(fields, rows, tokens)?))
}
