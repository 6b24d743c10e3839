//! What a checkpoint of HRM holds beside weights, optimizer and random numbers: which training it is, and the thoughts of every row, so
//! that going on is never having stopped.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_torch::{Device, Torch};

use super::model::{ReasoningModel, Thoughts};
use crate::error::TrainError;
use crate::store::weights::{self, Reader};

/// Names of its files.
const NUMBERS: &str = "hrm_state.json";
const THOUGHTS: &str = "thoughts.safetensors";

/// Which training it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Numbers {
    /// What must be the same to go on.
    words: String,
}

/// Writes both into a checkpoint.
pub(super) fn write_thoughts(folder: &Path, words: &str, thoughts: Option<&Thoughts>) -> Result<(), TrainError> {
    let path = folder.join(NUMBERS);
    let text = serde_json::to_string_pretty(&Numbers { words: words.to_owned() })
        .map_err(|error| TrainError::about_weights(&path, error.to_string()))?;
    fs::write(&path, text).map_err(|error| TrainError::about_file(&path, error))?;
    thoughts.map_or(Ok(()), |thoughts| weights::write(&folder.join(THOUGHTS), &thoughts.named()))
}

/// The thoughts of a checkpoint.
///
/// # Errors
/// When it is damaged, or of a training of other puzzles.
pub(super) fn read_thoughts(
    torch: &'static Torch,
    device: Device,
    folder: &Path,
    words: &str,
    model: &ReasoningModel,
) -> Result<Thoughts, TrainError> {
    let path = folder.join(NUMBERS);
    let text = fs::read(&path).map_err(|error| TrainError::about_file(&path, error))?;
    let found: Numbers = serde_json::from_slice(&text)
        .map_err(|error| TrainError::about_weights(&path, format!("is damaged: {error}")))?;
    if found.words != words {
        let problem = format!("is a checkpoint of another training: it was {}, and is {words}", found.words);
        return Err(TrainError::about_weights(folder, problem));
    }
    let path = folder.join(THOUGHTS);
    let mut reader = Reader::open(&path)?;
    model.thoughts_of(|name| {
        let missing = || TrainError::about_weights(&path, format!("has no `{name}`"));
        let tensor = reader.tensor(torch, name)?.ok_or_else(missing)?;
        Ok(tensor.to_device(device)?)
    })
}
