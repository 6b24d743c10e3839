//! What can go wrong while data, weights and checkpoints are read and written.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tonnage_torch::TorchError;

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
        /// The file.
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
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An error of PyTorch, passed on.
    #[error(transparent)]
    Torch(#[from] TorchError),
}

impl TrainError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    pub(crate) fn weights(path: &Path, problem: impl Into<String>) -> Self {
        Self::Weights { path: path.to_owned(), problem: problem.into() }
    }
}
