//! `apply_liger_kernel(model)` (transformers 5.17, integrations/liger.py), with which a trainer that was told so begins.

use crate::building::{LigerKernels, Mode};
use crate::job::JobSpec;
use crate::model_type::Liger;

/// Whether Liger replaces the layers of the job's model.
pub(super) fn patches_layers(job: &JobSpec) -> bool {
    job.liger_kernels && job.model.facts().liger == Liger::Whole
}

/// Replaces operations of the model that is trained, if it was asked for: by Liger's kernels or by other programs'.
pub(super) fn apply_liger_kernels(job: &JobSpec, mode: &Mode) {
    mode.apply_kernels(job.kernels);
    if patches_layers(job) {
        mode.apply_liger_kernels(LigerKernels::Layers);
    }
}
