//! Training over libtorch, with PyTorch's own operators in PyTorch's own order, so that what a step allocates and computes is what
//! the same step does in Python.
//!
//! So far: [`optimizer`]s as `torch.optim` has them, [`clip`]ping, the gradient [`scaler`], and learning-rate [`schedule`]s as
//! transformers has them, [`data`], and what a training keeps ([`store`]). Models and loops follow.

pub mod clip;
pub mod data;
mod error;
pub mod generate;
pub mod optimizer;
mod random;
pub mod scaler;
pub mod schedule;
pub mod store;
pub mod training;

pub use error::TrainError;

pub use tonnage_torch::{Device, ScalarType, Tensor, Torch, TorchError};
