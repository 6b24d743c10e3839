//! [`EstimateError`]: why a job has no estimate.

use thiserror::Error;

use crate::job::{FieldError, JobError, JobErrorKind, REHEARSE};
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
    /// A table of many GPUs has no replay left for one of their kinds.
    #[error(
        "not estimated: a simulation has {events} events, and as many are replayed for each of {kinds} kinds of GPU, which would take too long; \
         name fewer GPUs (--gpus)"
    )]
    NotReplayed {
        /// How many events a simulation has.
        events: u64,
        /// How many kinds of GPU the table has: those of a kind share a replay.
        kinds: u64,
    },
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

    /// Whether it is more than any GPU has.
    pub fn is_too_large(&self) -> bool {
        *self == Self::TooLarge || self.job().is_some_and(|error| error.kind == JobErrorKind::TooLarge)
    }

    /// What to do next.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Simulate(SimulateError::Job(error)) => error.hint.as_deref(),
            Self::Simulate(SimulateError::UnknownModelType { .. }) => Some(REHEARSE),
            Self::Simulate(SimulateError::Field(error)) => error.is_unsimulated.then_some(REHEARSE),
            Self::TooLarge => Some(LOWER_SIZES),
            Self::NotReplayed { .. } => None,
        }
    }
}
