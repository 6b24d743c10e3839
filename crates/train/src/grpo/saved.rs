//! What a checkpoint of GRPO holds beside weights, optimizer and random numbers: how far it is, the batch it is in the middle of, and a
//! reference that exists nowhere else.

use std::path::Path;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use tonnage_torch::{Tensor, Torch};

use super::batch::Batch;
use crate::error::TrainError;
use crate::store::numbers::Numbers;
use crate::store::weights::{self, Reader};
use crate::tensor::{self, Context, caught};

/// Names of its files.
const BATCH: &str = "generation_batch.safetensors";
const REFERENCE: &str = "reference.safetensors";

/// How far a training is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// What must be the same to go on.
    pub words: String,
    /// Rounds of questions that were asked, those drawn anew counted.
    pub rounds: u64,
    pub tokens_generated: u64,
    pub tokens_trained: u64,
    pub seconds_sampling: f64,
    pub seconds_training: f64,
}

impl Numbers for Progress {
    const FILE: &'static str = "grpo_state.json";

    fn words(&self) -> &str {
        &self.words
    }
}

/// The batch that passes to come train on.
pub(super) fn write_batch(folder: &Path, batch: &Batch) -> Result<(), TrainError> {
    weights::write(&folder.join(BATCH), &caught(|| batch.named())?)
}

/// # Errors
/// When it is missing or damaged.
pub(super) fn read_batch(torch: &'static Torch, folder: &Path, context: &Rc<Context>) -> Result<Batch, TrainError> {
    let path = folder.join(BATCH);
    let mut tensors = Reader::open(&path)?.all(torch)?;
    let mut moved = std::collections::BTreeMap::new();
    while let Some((name, tensor)) = tensors.pop_first() {
        let on_device = tensor.to_device(context.device)?;
        moved.insert(name, caught(|| tensor::Tensor::of(context, on_device))?);
    }
    Batch::from_named(|name| moved.remove(name))
        .map_err(|name| TrainError::about_weights(&path, format!("has no `{name}`")))
}

/// The reference's weights, where they are those of a warm start.
pub(super) fn write_reference(folder: &Path, named: &[(String, Tensor)]) -> Result<(), TrainError> {
    weights::write(&folder.join(REFERENCE), named)
}

/// Fills a reference with what a checkpoint has of it.
pub(super) fn read_reference(
    torch: &'static Torch,
    folder: &Path,
    named: &[(String, Tensor)],
) -> Result<(), TrainError> {
    let path = folder.join(REFERENCE);
    let mut reader = Reader::open(&path)?;
    for (name, weight) in named {
        let missing = || TrainError::about_weights(&path, format!("has no `{name}`"));
        let saved = reader.tensor(torch, name)?.ok_or_else(missing)?;
        weight.overwrite(&saved.to_bytes()?)?;
    }
    Ok(())
}
