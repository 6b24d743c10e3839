//! What a checkpoint of HRM holds beside weights, optimizer and random numbers: which training it is, and the thoughts of every row, so
//! that going on is never having stopped.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_torch::{Device, Torch};

use super::model::{ReasoningModel, Thoughts};
use crate::error::TrainError;
use crate::store::numbers::Numbers;
use crate::store::weights::{self, Reader};

const THOUGHTS: &str = "thoughts.safetensors";

/// Which training it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Training {
    words: String,
}

impl Numbers for Training {
    const FILE: &'static str = "hrm_state.json";

    fn words(&self) -> &str {
        &self.words
    }
}

/// Writes both into a checkpoint.
pub(super) fn write_thoughts(folder: &Path, words: &str, thoughts: Option<&Thoughts>) -> Result<(), TrainError> {
    Training { words: words.to_owned() }.write(folder)?;
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
    Training::read(folder, words)?;
    let path = folder.join(THOUGHTS);
    let mut reader = Reader::open(&path)?;
    model.thoughts_of(|name| {
        let missing = || TrainError::about_weights(&path, format!("has no `{name}`"));
        let tensor = reader.tensor(torch, name)?.ok_or_else(missing)?;
        Ok(tensor.to_device(device)?)
    })
}
