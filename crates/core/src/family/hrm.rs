//! The hierarchical reasoning model, for the loop of its own in `step/hrm.rs`.

use crate::building::{BuildError, Builder};
use crate::job::JobSpec;
use crate::model::hrm::{ActLossHead, Config};
use crate::model_type::HRM;

use super::{Build, Family};

pub(super) const FAMILY: Family = Family { model_types: &[HRM], build: Build::Hrm(build_hrm) };

/// Builds the model with its loss head on the device; buffers are as large as the batch.
fn build_hrm(job: &JobSpec, at: &Builder) -> Result<ActLossHead, BuildError> {
    Ok(ActLossHead::new(at, Config::read(&job.model.config, job.micro_batch_size, job.seq_len)?))
}
