//! Runs a job on abstract tensors, phase by phase, and records its trace.

mod simulate;
mod train;

pub use simulate::{SimulateError, Simulation, simulate};
