//! What to train, on what: the job as plain values, before anything is simulated.

mod case;
mod error;
mod fields;
pub mod hf;
mod job;
mod presets;
pub mod safetensors;

pub use case::from_case;
pub use error::{Place, SpecError};
pub use fields::{FieldError, Fields};
pub use job::{
    Attention, CheckpointPolicy, ClipSpec, JobSpec, LogitsPath, LoraSpec, LossKernel, ModelSpec, OptimizerKind,
    Precision, Task,
};
pub use presets::Preset;
