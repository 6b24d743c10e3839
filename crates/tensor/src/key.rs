//! The keys of a job that what is refused here is about, by their names in a job file.

/// How attention is computed.
pub const ATTENTION: &str = "attention";
/// What computes the loss.
pub const LOSS: &str = "loss";
/// The dtype of weights and of their step.
pub const PRECISION: &str = "precision";
