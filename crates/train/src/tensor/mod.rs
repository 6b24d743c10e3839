//! Tensors with numbers: PyTorch's own, behind the methods that models call. Models return tensors, not results: what an operator
//! fails with unwinds to [`LanguageModel`](crate::LanguageModel), which returns it.

mod checkpoint;
mod context;
mod handle;
mod shape;
mod stop;

pub(crate) use checkpoint::checkpoint;
pub use context::Context;
pub(crate) use context::Scope;
pub(crate) use handle::{Tensor, ints};
pub(crate) use stop::{caught, or_stop, stop};
