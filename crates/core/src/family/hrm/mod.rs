//! The hierarchical reasoning model (sapientinc/HRM at its first release, run eagerly): not a language model but a
//! recurrent solver of puzzles, with a forward pass, a loss head and a training step of its own.

mod config;
mod layers;
mod loss;
mod model;

use crate::building::{BuildError, Builder};
use crate::job::JobSpec;
use crate::model_type::HRM;

use super::{Build, Family};
use config::Config;

pub(crate) use layers::CastedSparseEmbedding;
pub(crate) use loss::{ActLossHead, Results};
pub(crate) use model::{Batch, Carry};

pub(super) const FAMILY: Family = Family { model_types: &[HRM], build: Build::Hrm(build_hrm) };

/// Builds the model with its loss head on the device; buffers are as large as the batch.
fn build_hrm(job: &JobSpec, at: &Builder) -> Result<ActLossHead, BuildError> {
    Ok(ActLossHead::new(at, Config::read(&job.model.config, job.micro_batch_size, job.seq_len)?))
}
