//! The hierarchical reasoning model (core's own source, with numbers) and a training on it, a segment a step.
//!
//! [`HrmReady`] makes or reads puzzles -> `Feeder` hands out rows -> [`SegmentTrainer`] makes a step -> `Learning` tells, evaluates, saves.

mod data;
mod evaluate;
mod feeder;
mod learning;
mod model;
mod program;
mod report;
mod saved;
mod settings;
mod trainer;

pub use model::{Puzzles, ReasoningModel, Segment, Thoughts};
pub use program::HrmReady;
pub use report::{Halted, HrmReport, PuzzleReport, PuzzleResult};
pub use settings::HrmSettings;
pub use trainer::SegmentTrainer;
