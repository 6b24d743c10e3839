//! [`EstimateError`]: why a job has no estimate.

use thiserror::Error;

use crate::job::{FieldError, JobError, REHEARSE};
use crate::step::SimulateError;
use crate::tensor::{LOWER_SIZES, TOO_LARGE};

/// Why a job has no estimate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EstimateError {
    /// The model cannot be built.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The job does not fit into any GPU's addresses.
    #[error("{TOO_LARGE}")]
    TooLarge,
}

impl EstimateError {
    /// The field of the model's config that is at fault, if one is.
    pub const fn field(&self) -> Option<&FieldError> {
        match self {
            Self::Simulate(SimulateError::Field(error)) => Some(error),
            _ => None,
        }
    }

    /// What of the job PyTorch refuses, if that is the error.
    pub const fn job(&self) -> Option<&JobError> {
        match self {
            Self::Simulate(SimulateError::Job(error)) => Some(error),
            _ => None,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Simulate(SimulateError::Job(error)) => error.hint.as_deref(),
            Self::Simulate(SimulateError::UnknownModelType { .. }) => Some(REHEARSE),
            Self::Simulate(SimulateError::Field(error)) => error.is_unsimulated.then_some(REHEARSE),
            Self::TooLarge => Some(LOWER_SIZES),
        }
    }
}
