//! Starts training commands: over a phantom GPU, or under guard.

pub mod rehearse;
