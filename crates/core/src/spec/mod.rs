//! What to train, on what: the job as plain values, before anything is simulated.

mod fields;
mod job;

pub use fields::{FieldError, Fields};
pub use job::{
    Attention, CheckpointPolicy, ClipSpec, JobSpec, LogitsPath, LoraSpec, LossKernel, ModelSpec, OptimizerKind,
    Precision, Task,
};
