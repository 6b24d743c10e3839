//! How much GPU memory a PyTorch training job takes, to the byte, without a GPU and without PyTorch.
//!
//! A job is a model, a batch, a precision, what trains it, and on what. [`job::JobSource`] holds what is known of it as plain
//! data and resolves it, with the defaults of the program that trains, to a [`job::JobSpec`] in which every value is decided
//! and remembers where it came from. [`estimate::estimate`] runs that job on tensors without numbers, replays its
//! allocations through PyTorch's caching allocator, and answers.
//!
//! ```
//! use tonnage_core::estimate::{Fit, estimate};
//! use tonnage_core::job::{JobSource, Override};
//! use tonnage_core::plan::fit::verdict_on;
//!
//! let source = JobSource::model("gpt2").set("micro_batch_size", 8).set("precision", "bf16").set("gpu", "a100-80");
//! let resolved = source.resolve(&[])?;
//! let answer = estimate(&resolved.job)?;
//! println!("{} bytes at {}", answer.peak_reserved_bytes, answer.peak_phase.label());
//! assert!(answer.total_bytes < answer.usable_bytes);
//!
//! // The same job with other values, and whether it fits.
//! let larger = source.resolve(&[Override::caller("micro_batch_size", 512)])?.job;
//! assert_eq!(verdict_on(&larger, &larger.gpu)?.fit, Fit::DoesNotFit);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A job file is text that is handed in, with a name for the places of errors:
//!
//! ```
//! use tonnage_core::job::{JobSource, keys};
//!
//! let file = "model = \"gpt2\"\nseq_len = 4096\n";
//! let error = JobSource::from_file("job.toml", file).resolve(&[]).unwrap_err();
//! assert_eq!(error.key(), Some(keys::SEQ_LEN));
//! assert_eq!(error.place.map(|place| place.line), Some(2));
//! ```
//!
//! Nothing here reads a file, the environment, a clock or a terminal: what a job names by a path, [`job::JobSource::lookups`]
//! tells, and whoever has files hands their text over. The folder `examples` has whole programs: one estimate, a sweep, a
//! job file with changes, reading a verdict.
//!
//! The modules are the pipeline, in this order: [`job`] (what to train, on what) -> [`step`] (runs it on abstract tensors) ->
//! [`trace::Trace`] (allocations and frees) -> [`alloc`] (PyTorch's caching allocator replays it) -> [`mod@estimate`] ->
//! [`plan`] (changes to a job and estimates of the changed jobs). [`estimate::SimulatedJob`] keeps the trace for further
//! questions, [`alloc::replay_trace`] runs one through other allocator settings, and [`recording`] reads and compares what
//! real jobs did. Tensors, ops and models are how it is done, not what is offered.

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

mod building;
pub mod estimate;
pub mod failure;
pub mod family;
pub mod gpu;
pub mod job;
pub mod limit;
mod model;
pub mod model_type;
mod optimizer;
mod parallel;
pub mod plan;
pub mod printable;
pub mod progress;
pub mod random;
pub mod record;
pub mod recording;
pub mod rehearsal;
pub mod step;

pub use tonnage_alloc as alloc;
pub use tonnage_alloc::{nearest, trace, units};
pub use tonnage_tensor::{dtype, host, small_sort, work};
pub(crate) use tonnage_tensor::{op, tensor};
