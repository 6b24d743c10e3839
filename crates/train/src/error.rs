//! What can go wrong while data, weights and checkpoints are read and written.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tonnage_torch::TorchError;

use crate::building::BuildError;

/// Each names the file or value, and the way out where one is known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file or folder that cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// Text that is not as it should be.
    #[error("{}: {problem}\nhint: {hint}", .path.display())]
    Text {
        /// The file that was read or written.
        path: PathBuf,
        /// What is wrong, with its line where it has one.
        problem: String,
        /// The way out.
        hint: &'static str,
    },
    /// A text that this vocabulary has no tokens for, or tokens that it has no text for.
    #[error("{0}")]
    Vocabulary(String),
    /// Weights or a checkpoint that are damaged or of another model.
    #[error("{}: {problem}", .path.display())]
    Weights {
        /// The file that was read or written.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// What is asked for and cannot be done, or is of no use.
    #[error("{problem}\nhint: {hint}")]
    Refused {
        /// What is wrong, in words.
        problem: String,
        /// The way out.
        hint: String,
    },
    /// Ranks that do not meet, or one that has gone.
    #[error("{0}")]
    Ranks(String),
    /// An error in a step, with its place.
    #[error("step {step}{}: {source}", .module.as_ref().map(|module| format!(", in {module}")).unwrap_or_default())]
    Step {
        /// The step that failed, counted from 1.
        step: u64,
        /// The path of the module.
        module: Option<String>,
        /// What went wrong.
        source: Box<Self>,
    },
    /// A model that cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An error of PyTorch, passed on.
    #[error(transparent)]
    Torch(#[from] TorchError),
}

impl TrainError {
    /// PyTorch's own error, where it is one.
    pub fn of_torch(&self) -> Option<&TorchError> {
        match self {
            Self::Torch(error) => Some(error),
            Self::Step { source, .. } => source.of_torch(),
            _ => None,
        }
    }

    pub(crate) fn refused_with(problem: String, hint: impl Into<String>) -> Self {
        Self::Refused { problem, hint: hint.into() }
    }

    pub(crate) fn in_step(self, step: u64, module: Option<&str>) -> Self {
        Self::Step { step, module: module.map(str::to_owned), source: Box::new(self) }
    }

    pub(crate) fn about_file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// Of a checkpoint that this training cannot go on from.
    pub(crate) fn another_training(folder: &Path, changed: &str) -> Self {
        Self::about_weights(folder, format!("is a checkpoint of another training: {changed}"))
    }

    pub(crate) fn about_weights(path: &Path, problem: impl Into<String>) -> Self {
        Self::Weights { path: path.to_owned(), problem: problem.into() }
    }
}
