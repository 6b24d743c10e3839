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
mod kept_leaves;
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
mod ring;
mod save_on_cpu;
mod saved;
mod scope;
mod shape;
mod workspace;

pub use autocast::{cast_arguments, is_autocast};
pub use autograd::NodeBuilder;
pub use autograd::gradients;
pub use checkpoint::checkpoint;
pub use checkpoint::checkpoint_all;
pub use context::Context;
pub use context::Thread;
pub use counter::Product;
pub use handle::Scratch;
pub use handle::Tensor;
pub use layout::Layout;
pub use memo::{Copied, Doubles, Growth, Landing, Leap, Token, TraceSlice};
pub use meta::TensorMeta;
pub use node::{Delivered, Gradients};
pub use offload::{EnteredOffload, OffloadActivations};
pub use recorder::{LOWER_SIZES, MOST_EVENTS, TOO_LARGE};
pub use ring::Ring;
pub use save_on_cpu::SaveOnCpu;
pub use saved::{EnteredHooks, Saved};
pub use scope::Scope;
pub use shape::broadcast;
pub use shape::{MAX_DIMS, Shape};
