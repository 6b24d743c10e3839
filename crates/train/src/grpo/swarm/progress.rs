//! How far a node is, as its checkpoint holds it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

const NUMBERS: &str = "swarm_state.json";

/// Counts from the beginning; a round that went by without this node is in none of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// What must be the same to go on.
    pub words: String,
    pub name: String,
    /// The sum over rounds of the mean reward of the node's own completions.
    pub cumulative: f64,
    /// The same of all nodes, as they published it.
    pub swarm_cumulative: f64,
    pub updates: u64,
    pub tokens_generated: u64,
    pub tokens_trained: u64,
    pub ignored_files: u64,
    pub refused_groups: u64,
    pub cut: u64,
    pub lost_rounds: u64,
    pub seconds_sampling: f64,
    pub seconds_training: f64,
    pub seconds_waiting: f64,
}

impl Progress {
    pub fn write(&self, folder: &Path) -> Result<(), TrainError> {
        let path = folder.join(NUMBERS);
        let text =
            serde_json::to_string_pretty(self).map_err(|error| TrainError::about_weights(&path, error.to_string()))?;
        fs::write(&path, text).map_err(|error| TrainError::about_file(&path, error))
    }

    /// # Errors
    /// When it is damaged, or of another training.
    pub fn read(folder: &Path, words: &str) -> Result<Self, TrainError> {
        let path = folder.join(NUMBERS);
        let text = fs::read(&path).map_err(|error| TrainError::about_file(&path, error))?;
        let found: Self = serde_json::from_slice(&text)
            .map_err(|error| TrainError::about_weights(&path, format!("is damaged: {error}")))?;
        if found.words != words {
            let problem = format!("is a checkpoint of another training: it was {}, and is {words}", found.words);
            return Err(TrainError::about_weights(folder, problem));
        }
        Ok(found)
    }
}
