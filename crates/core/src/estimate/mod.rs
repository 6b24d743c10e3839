//! What a job needs, and whether it fits: replays the trace of `step` through `alloc` and reads the figures off.
//!
//! [`SimulatedJob`] holds the trace, so that the estimate, the timeline and an out-of-memory question all come from one
//! simulation. [`estimate`] is the short way.

mod activations;
mod breakdown;
mod caveat;
mod deployment;
mod engine;
mod error;
mod figures;
mod other_devices;
mod outside;
mod padding;
mod simulated;
mod timeline;
mod verdict;

pub use crate::alloc::PhasePeak;
pub use breakdown::{AtPeak, LiveTensor};
pub use caveat::{Caveat, Direction};
pub use deployment::{Deployment, Fit, GpuLoad, NodeBytes, Process, Room};
pub use engine::Engine;
pub use error::EstimateError;
pub use figures::{Estimate, NO_SIZE, shown_bound};
pub use outside::Outside;
pub(crate) use outside::outside_bytes;
pub use simulated::{SimulatedJob, estimate};
pub use timeline::{PhaseSpan, Timeline, TimelinePoint};
pub use verdict::{MARGIN_MIN, MARGIN_PERCENT, OomMoment, Verdict, safety_margin};
