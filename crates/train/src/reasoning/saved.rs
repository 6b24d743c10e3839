//! What a checkpoint of HRM holds beside weights, optimizer and random numbers: which training it is, and the thoughts of every row of
//! every rank, so that going on is never having stopped.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_torch::{Device, Tensor, Torch};

use super::model::{ReasoningModel, Thoughts};
use crate::error::TrainError;
use crate::ranks::Ranks;
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

/// Rank 0's have the names that the only process's have.
fn name_of(name: &str, rank: u64) -> String {
    if rank == 0 { name.to_owned() } else { format!("{name}.{rank}") }
}

/// The thoughts of all ranks, which all ranks call and the first writes.
///
/// # Errors
/// When a rank has gone.
pub(super) fn gather_thoughts(
    torch: &'static Torch,
    thoughts: &Thoughts,
    ranks: &dyn Ranks,
) -> Result<Vec<(String, Tensor)>, TrainError> {
    let own = thoughts.named();
    if ranks.count() == 1 {
        return Ok(own);
    }
    let mut all = Vec::new();
    for (name, tensor) in own {
        for (rank, bytes) in (0..).zip(ranks.gather(&tensor.to_bytes()?)?) {
            all.push((name_of(&name, rank), torch.tensor_of_bytes(&bytes, &tensor.sizes(), tensor.scalar_type()?)?));
        }
    }
    Ok(all)
}

/// Writes both into a checkpoint.
pub(super) fn write_thoughts(folder: &Path, words: &str, thoughts: &[(String, Tensor)]) -> Result<(), TrainError> {
    Training { words: words.to_owned() }.write(folder)?;
    weights::write(&folder.join(THOUGHTS), thoughts)
}

/// The thoughts of a rank in a checkpoint.
///
/// # Errors
/// When it is damaged, or of a training of other puzzles.
pub(super) fn read_thoughts(
    torch: &'static Torch,
    device: Device,
    folder: &Path,
    words: &str,
    model: &ReasoningModel,
    rank: u64,
) -> Result<Thoughts, TrainError> {
    Training::read(folder, words)?;
    let path = folder.join(THOUGHTS);
    let mut reader = Reader::open(&path)?;
    model.thoughts_of(|name| {
        let name = name_of(name, rank);
        let missing = || TrainError::about_weights(&path, format!("has no `{name}`"));
        let tensor = reader.tensor(torch, &name)?.ok_or_else(missing)?;
        Ok(tensor.to_device(device)?)
    })
}
