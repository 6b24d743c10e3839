//! A training: [`Settings`] of a job -> [`Trainer`], which makes steps, evaluates, saves and tells what it does as [`Event`]s.

mod checkpoint;
mod evaluate;
mod event;
mod model;
mod ranks;
mod settings;
mod step;
mod trainer;

pub use checkpoint::{Saved, State};
pub use event::{Event, Held, StepReport};
pub use ranks::{Alone, Ranks};
pub use settings::Settings;
pub use trainer::{Outcome, Parts, Trainer};
