//! A PyTorch without numbers: tensors with a shape, strides, a dtype and a reference-counted storage, and a tape.
//!
//! A Rust variable's life is a Python variable's life: creating a storage records an allocation, dropping its last
//! reference records the free. `op` and `nn` build on this; `step` drives it.

mod autocast;
mod autograd;
mod checkpoint;
mod context;
mod counter;
mod engine;
mod handle;
mod layout;
mod memo;
mod meta;
mod node;
mod object;
mod offload;
mod origins;
mod other_devices;
mod recorder;
mod reentrant;
mod save_on_cpu;
mod saved;
mod scope;
mod shape;
mod workspace;

pub(crate) use autocast::{cast_arguments, is_autocast};
pub(crate) use autograd::{NodeBuilder, gradients};
pub use checkpoint::checkpoint;
pub(crate) use checkpoint::checkpoint_all;
pub use context::Context;
pub(crate) use context::Thread;
pub(crate) use counter::Product;
pub(crate) use handle::Scratch;
pub use handle::Tensor;
pub(crate) use layout::Layout;
pub(crate) use memo::{Copied, Doubles, Growth, Landing, Leap, Token, TraceSlice};
pub(crate) use node::Gradients;
pub(crate) use offload::{EnteredOffload, OffloadActivations};
pub(crate) use recorder::{LOWER_SIZES, MOST_EVENTS, TOO_LARGE};
pub(crate) use save_on_cpu::SaveOnCpu;
pub(crate) use saved::{EnteredHooks, Saved};
pub use scope::Scope;
pub(crate) use shape::broadcast;
pub use shape::{MAX_DIMS, Shape};
