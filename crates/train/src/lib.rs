//! Training over libtorch, with PyTorch's own operators in PyTorch's own order, so that what a step allocates and computes is what
//! the same step does in Python.
//!
//! [`program`] is a whole training of a job: [`data`], a [`LanguageModel`] (core's own source, with numbers), the loop ([`training`]) over
//! [`optimizer`]s as `torch.optim` has them, [`clip`]ping, the gradient [`scaler`] and learning-rate [`schedule`]s as transformers has
//! them, and what it keeps ([`store`]). [`writing`] generates from what was trained.

mod building;
mod cache;
pub mod clip;
pub mod data;
mod error;
pub mod generate;
pub mod grpo;
mod language_model;
// Files of core, which compiles them over tensors without numbers; what only those need is unused here.
#[allow(dead_code, unused_imports)]
mod model;
mod op;
pub mod optimizer;
mod precision;
mod prepared;
pub mod program;
pub mod ranks;
pub mod reasoning;
pub mod scaler;
pub mod schedule;
pub mod store;
mod tensor;
pub mod training;
pub mod writing;

pub use building::BuildError;
pub use cache::Cache;
pub use error::TrainError;
pub use language_model::{Call, LanguageModel, Output, Parameter, Weights};
pub use precision::scalar_type;
pub use prepared::Prepared;

use tonnage_core::{dtype, job, trace};
pub use tonnage_torch::{Device, ScalarType, Tensor, Torch, TorchError};
