//! A PyTorch without numbers: tensors with a shape, strides, a dtype and a reference-counted storage, and a tape.
//!
//! A Rust variable's life is a Python variable's life: creating a storage records an allocation, dropping its last
//! reference records the free. `op` and `nn` build on this; `step` drives it.

mod autocast;
mod autograd;
mod checkpoint;
mod context;
mod counter;
mod echo;
mod edge;
mod engine;
mod forward_hooks;
mod growth;
mod handle;
mod kin;
mod layout;
mod origins;
mod part;
mod scope;
mod shape;
mod workspace;

pub(crate) use autocast::{cast_arguments, is_autocast};
pub(crate) use autograd::{Gradients, NodeBuilder, Saved, gradients};
pub use checkpoint::checkpoint;
pub use context::Context;
pub(crate) use context::MOST_EVENTS;
pub(crate) use counter::Product;
pub(crate) use echo::{Renaming, Stretch};
pub(crate) use forward_hooks::ForwardHooks;
pub(crate) use growth::{Doubles, Growth, Landing, Leap, Token};
pub use handle::Tensor;
pub(crate) use handle::{Look, Scratch};
pub(crate) use layout::Layout;
pub(crate) use part::{Copied, Part};
pub use scope::Scope;
pub(crate) use shape::broadcast;
pub use shape::{MAX_DIMS, Shape};
pub(crate) use workspace::Thread;
