//! Starts training commands and keeps them alive: the only crate that starts processes.
//!
//! [`supervise`] runs what a [`store::RunFolder`] says: [`launch`] starts processes and sees their end, [`guard`] decides
//! what follows a failure, [`adapter`] speaks the flags of trainers and launchers, [`ledger`] shares a GPU among runs.

pub mod adapter;
pub mod corrections;
pub mod guard;
pub mod launch;
pub mod ledger;
pub mod private;
pub mod rehearse;
pub mod request;
pub mod secrets;
pub mod store;
pub mod supervise;

use std::path::Path;

use thiserror::Error;

/// Why a run could not be made, found or supervised.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file or folder that cannot be used.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// Something that is not there, or not as it should be.
    #[error("{0}")]
    Missing(String),
    /// A command that cannot be started.
    #[error("cannot start `{command}`: {reason}")]
    Start {
        /// Its first word.
        command: String,
        /// Why.
        reason: String,
    },
}

impl RunError {
    /// `error` at `path`.
    pub fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), reason: error.to_string().to_lowercase() }
    }
}
