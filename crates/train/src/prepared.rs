//! [`Prepared`]: a training that can begin, of texts, questions or puzzles, alone or in a swarm.

use tonnage_core::job::Task;
use tonnage_torch::{Device, Torch};

use crate::error::TrainError;
use crate::grpo::GrpoReady;
use crate::grpo::swarm::SwarmReady;
use crate::program::{Program, Ready};
use crate::ranks::Ranks;
use crate::reasoning::HrmReady;
use crate::training::{Event, Outcome};

/// What is trained on is there, and the job is one that is trained here.
pub enum Prepared<'a> {
    /// It learns from texts.
    Texts(Box<Ready<'a>>),
    /// It learns by GRPO from questions that it makes.
    Questions(Box<GrpoReady<'a>>),
    /// It is a node of a swarm.
    Swarm(Box<SwarmReady<'a>>),
    /// HRM learns from puzzles.
    Puzzles(Box<HrmReady<'a>>),
}

impl<'a> Prepared<'a> {
    /// Reads the data, or looks at the questions; nothing of PyTorch is needed for it. `rank` of `ranks` processes gets its share.
    ///
    /// # Errors
    /// When the job is none that is trained here, or what it learns from cannot be read.
    pub fn new(program: &'a Program<'a>, ranks: u64, rank: u64) -> Result<Self, TrainError> {
        match program.job.task {
            Task::Grpo(_) => Ok(Self::Questions(Box::new(GrpoReady::new(program)?))),
            Task::Swarm(_) => Ok(Self::Swarm(Box::new(SwarmReady::new(program)?))),
            Task::Hrm => Ok(Self::Puzzles(Box::new(HrmReady::new(program)?))),
            _ => Ok(Self::Texts(Box::new(program.prepare_rank(ranks, rank)?))),
        }
    }

    /// What the user must know of the data.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Texts(ready) => ready.notes(),
            Self::Questions(_) | Self::Puzzles(_) | Self::Swarm(_) => &[],
        }
    }

    /// A line on what it learns from.
    ///
    /// # Errors
    /// Never after [`Prepared::new`].
    pub fn about_data(&self) -> Result<String, TrainError> {
        match self {
            Self::Texts(ready) => Ok(ready.about_data()),
            Self::Questions(ready) => ready.about_data(),
            Self::Swarm(ready) => ready.about_data(),
            Self::Puzzles(ready) => Ok(ready.about_data()),
        }
    }

    /// Builds the model and trains it.
    ///
    /// # Errors
    /// Those of loading, training and saving; whatever was saved is whole.
    pub fn train(
        &self,
        torch: &'static Torch,
        device: Device,
        ranks: &dyn Ranks,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        match self {
            Self::Texts(ready) => ready.train(torch, device, ranks, stops, observe),
            Self::Questions(ready) => ready.train(torch, device, stops, observe),
            Self::Swarm(ready) => ready.train(torch, device, stops, observe),
            Self::Puzzles(ready) => ready.train(torch, device, ranks, stops, observe),
        }
    }
}
