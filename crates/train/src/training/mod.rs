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
mod stepwise;
mod trainer;

pub use crate::ranks::{Alone, Ranks};
pub(crate) use checkpoint::Parts as StateParts;
pub use checkpoint::{NUMBERS as STATE, Saved, State};
pub use event::{Event, Held, StepReport};
pub(crate) use random::Generators;
pub use settings::Settings;
pub(crate) use step::host_number;
pub(crate) use stepwise::{Stepwise, make_steps};
pub(crate) use trainer::held_memory;
pub use trainer::{Outcome, Parts, Trainer, peak_of_host};
