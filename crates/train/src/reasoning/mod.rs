//! The hierarchical reasoning model (core's own source, with numbers) and a training on it, a segment a step.

mod model;
mod trainer;

pub use model::{Puzzles, ReasoningModel, Segment, Thoughts};
pub use trainer::SegmentTrainer;
