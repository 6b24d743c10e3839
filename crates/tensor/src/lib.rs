//! A PyTorch without numbers: [`tensor`]s with a shape, strides, a dtype and a counted storage, a tape, and the operators ([`op`]). What runs on them
//! is recorded as a [`tonnage_alloc::trace::Trace`] of allocations and frees.
//!
//! It serves `tonnage-core`, which builds models and steps of it, and is a crate of its own because most of a simulation's time goes into it: how small or
//! fast it is compiled is its own (`Cargo.toml`, docs/speed.md).

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
// Operators and methods are named as PyTorch's are, which documents them.
#![allow(missing_docs)]

mod attention_choice;
mod device;
pub mod dtype;
pub mod failure;
pub mod host;
pub mod key;
pub mod op;
pub mod small_sort;
pub mod tensor;
pub mod transformers;
pub mod work;

pub use attention_choice::Attention;
pub use device::Device;
