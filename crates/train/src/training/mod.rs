//! A training: [`Settings`] of a job -> [`Trainer`], which makes steps, evaluates, saves and tells what it does as [`Event`]s.

mod checkpoint;
mod data_parallel;
mod evaluate;
mod event;
mod model;
mod patience;
mod random;
mod settings;
mod step;
mod trainer;

pub use crate::ranks::{Alone, Ranks};
pub use checkpoint::{NUMBERS as STATE, Saved, State};
pub use event::{Event, Held, StepReport};
pub use settings::Settings;
pub use trainer::{Outcome, Parts, Trainer};
