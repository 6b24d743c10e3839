//! The hierarchical reasoning model (sapientinc/HRM at its first release, run eagerly): not a language model but a
//! recurrent solver of puzzles, with a forward pass and a loss head of its own.

mod config;
mod layers;
mod loss;
mod model;

pub(crate) use config::Config;
pub(crate) use layers::CastedSparseEmbedding;
pub(crate) use loss::{ActLossHead, Results};
pub(crate) use model::{Batch, Carry};
