//! [`Subject`]: the model of a job, of the shared source or of a trainer of its own.

use tonnage_core::job::JobSpec;
use tonnage_torch::{Device, Tensor, Torch};

use crate::agi2::{self, Agi2};
use crate::error::TrainError;
use crate::language_model::{LanguageModel, Weights};
use crate::training::Trainable;

/// A model that is trained or generates.
pub enum Subject {
    /// Of a family of transformers.
    Language(Box<LanguageModel>),
    /// The guide's small GPT.
    Agi2(Agi2),
}

impl Subject {
    /// Why a job's model cannot be trained here, if so.
    ///
    /// # Errors
    /// When it is only simulated; with what trains it.
    pub fn check(job: &JobSpec) -> Result<(), TrainError> {
        if agi2::is_one(job) { Ok(()) } else { LanguageModel::check(job) }
    }

    /// Builds it.
    ///
    /// # Errors
    /// As [`LanguageModel::build`].
    pub fn build(
        torch: &'static Torch,
        device: Device,
        job: &JobSpec,
        weights: Weights<'_>,
    ) -> Result<Self, TrainError> {
        if agi2::is_one(job) {
            return Agi2::build(torch, device, job, weights).map(Self::Agi2);
        }
        LanguageModel::build(torch, device, job, weights).map(|model| Self::Language(Box::new(model)))
    }

    /// As the loop sees it.
    pub fn trainable(&self) -> &dyn Trainable {
        match self {
            Self::Language(model) => model.as_ref(),
            Self::Agi2(model) => model,
        }
    }

    /// All weights by their names, tied ones once.
    pub fn named(&self) -> Vec<(String, Tensor)> {
        match self {
            Self::Language(model) => model.named(),
            Self::Agi2(model) => model.named().to_vec(),
        }
    }
}
