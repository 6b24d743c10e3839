//! The pure core of Tonnage: how much GPU memory a PyTorch training job takes, to the byte.
//!
//! Its modules are the pipeline, in this order: `spec` (what to train, on what) -> `step` (runs it on
//! abstract tensors) -> [`trace::Trace`] (allocations and frees) -> `alloc` (PyTorch's caching allocator
//! replays it) -> `estimate`. Nothing here reads a file, the environment, a clock or a terminal.
//!
//! To start: [`job::JobSource`] makes a [`job::JobSpec`] of a job file, flags and defaults; [`estimate::estimate`] answers in one call, and [`estimate::SimulatedJob`] keeps the trace for further
//! questions. [`step::simulate`] gives the trace alone, [`alloc::replay_trace`] runs one through other allocator settings,
//! and [`recording`] reads and compares what real jobs did. Tensors, ops and models are how it is done, not what is offered.
//!
//! ```
//! use tonnage_core::{estimate, job};
//!
//! let job_file = r#"
//!     model = "gpt2"
//!     micro_batch_size = 8
//!     seq_len = 1024
//!     precision = "bf16"
//!     gpu = "a100-80"
//! "#;
//! let source = job::JobSource::from_file("job.toml", job_file);
//! let resolved = source.resolve(&[])?;
//! let answer = estimate::estimate(&resolved.job)?;
//! println!("{} bytes at {}", answer.peak_reserved_bytes, answer.peak_phase.label());
//! assert!(answer.total_bytes < answer.usable_bytes);
//! assert_eq!(resolved.origin("precision").unwrap().to_string(), "job.toml:5");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub mod failure;
pub mod family;
pub mod gpu;
pub mod job;
pub mod limit;
pub mod model_type;
pub mod nearest;
mod nn;
mod op;
mod optimizer;
mod parallel;
pub mod plan;
pub mod printable;
pub mod progress;
pub mod record;
pub mod recording;
pub mod rehearsal;
pub mod step;
mod tensor;
pub mod trace;
pub mod units;
pub mod work;
