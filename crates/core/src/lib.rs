//! The pure core of Tonnage: how much GPU memory a PyTorch training job takes, to the byte.
//!
//! Its modules are the pipeline, in this order: `spec` (what to train, on what) -> `step` (runs it on
//! abstract tensors) -> [`trace::Trace`] (allocations and frees) -> `alloc` (PyTorch's caching allocator
//! replays it) -> `estimate`. Nothing here reads a file, the environment, a clock or a terminal.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

pub mod alloc;
pub mod dtype;
pub mod estimate;
pub mod family;
pub mod gpu;
mod nearest;
mod nn;
mod op;
mod optimizer;
pub mod recording;
pub mod spec;
pub mod step;
pub mod tensor;
pub mod trace;
pub mod units;
