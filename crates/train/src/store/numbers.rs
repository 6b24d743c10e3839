//! Small JSON files of a checkpoint: what a kind of training counts, and the words that must be the same to go on.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::TrainError;

/// What a checkpoint of one kind of training counts.
pub(crate) trait Numbers: Serialize + DeserializeOwned {
    /// Its file in the checkpoint's folder.
    const FILE: &'static str;

    /// What must be the same to go on.
    fn words(&self) -> &str;

    fn write(&self, folder: &Path) -> Result<(), TrainError> {
        let path = folder.join(Self::FILE);
        let text =
            serde_json::to_string_pretty(self).map_err(|error| TrainError::about_weights(&path, error.to_string()))?;
        fs::write(&path, text).map_err(|error| TrainError::about_file(&path, error))
    }

    /// # Errors
    /// When it is damaged, or of a training with other `words`.
    fn read(folder: &Path, words: &str) -> Result<Self, TrainError> {
        let path = folder.join(Self::FILE);
        let text = fs::read(&path).map_err(|error| TrainError::about_file(&path, error))?;
        let found: Self = serde_json::from_slice(&text)
            .map_err(|error| TrainError::about_weights(&path, format!("is damaged: {error}")))?;
        if found.words() != words {
            let changed = format!("it was {}, and is {words}", found.words());
            return Err(TrainError::another_training(folder, &changed));
        }
        Ok(found)
    }
}
