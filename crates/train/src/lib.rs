//! Training over libtorch, with PyTorch's own operators in PyTorch's own order, so that what a step allocates and computes is what
//! the same step does in Python.
//!
//! So far: [`optimizer`]s as `torch.optim` has them, [`clip`]ping, the gradient [`scaler`], and learning-rate [`schedule`]s as
//! transformers has them, [`data`], what a training keeps ([`store`]), and every [`LanguageModel`] that an estimate mirrors. Loops follow.

mod building;
mod cache;
pub mod clip;
pub mod data;
mod error;
pub mod generate;
mod language_model;
// Files of core, which compiles them over tensors without numbers; what only those need is unused here.
#[allow(dead_code, unused_imports)]
mod model;
mod op;
pub mod optimizer;
mod precision;
pub mod scaler;
pub mod schedule;
pub mod store;
mod tensor;
pub mod training;

pub use building::BuildError;
pub use cache::Cache;
pub use error::TrainError;
pub use language_model::{Call, LanguageModel, Output, Parameter, Weights};
pub use precision::scalar_type;

use tonnage_core::{dtype, job, trace};
pub use tonnage_torch::{Device, ScalarType, Tensor, Torch, TorchError};
