//! What a training keeps beside its weights, so that going on is the same as never having stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_core::job::keys;
use tonnage_torch::{Device, Tensor, Torch};

use super::patience::Patience;
use super::random::{Generator, Generators};
use crate::data::Position;
use crate::error::TrainError;
use crate::optimizer::Optimizer;
use crate::scaler::GradScaler;
use crate::store::weights::{self, Reader};

/// Names of the files of a checkpoint.
const TENSORS: &str = "training_state.safetensors";
/// Named as the Trainer's, by which `tonnage run` knows a whole checkpoint and how far it is.
pub const NUMBERS: &str = "trainer_state.json";
/// Of [`State`]; it rises when an older reader would misunderstand.
const FORMAT: u32 = 1;

/// Where a training stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of the form, of the writer (`FORMAT`).
    pub format: u32,
    /// Steps that are done.
    #[serde(rename = "global_step")]
    pub step: u64,
    /// Steps of the whole training.
    pub max_steps: u64,
    /// Where each rank's data goes on.
    pub position: Position,
    /// Labels over all ranks.
    pub tokens_trained: u64,
    /// Of training, attempts that were lost left out.
    pub seconds: f64,
    /// Rows of a step over all ranks: another number is another training.
    pub rows_per_step: u64,
    /// How many processes trained.
    pub ranks: u64,
    /// Tokens of a row.
    pub seq_len: u64,
    /// The seed of its data.
    pub seed: u64,
    /// Rows of an epoch.
    pub rows: u64,
    /// How long nothing has become better.
    #[serde(default)]
    pub patience: Patience,
}

/// What a checkpoint holds besides weights.
pub struct Saved {
    /// Step, rows and random numbers when it was written.
    pub state: State,
    tensors: BTreeMap<String, Tensor>,
}

/// What is written and restored.
pub(crate) struct Parts<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    /// This process's rank, from 0.
    pub rank: u64,
    /// Of the optimizer's parameters, in its order.
    pub names: &'a [String],
}

impl Parts<'_> {
    /// Writes all of it into `folder`.
    pub fn write_checkpoint(
        &self,
        folder: &Path,
        state: &State,
        optimizer: &dyn Optimizer,
        scaler: Option<&GradScaler>,
        generators: &Generators,
    ) -> Result<(), TrainError> {
        let mut tensors = generators.tensors(self.torch)?;
        for entry in optimizer.state() {
            let name = self.names.get(entry.parameter).map_or("", String::as_str);
            tensors.push((format!("optimizer.{}.{name}", entry.name), entry.tensor.clone()));
        }
        if let Some((scale, tracker)) = scaler.and_then(GradScaler::state) {
            tensors.push(("scaler.scale".to_owned(), scale.clone()));
            tensors.push(("scaler.growth_tracker".to_owned(), tracker.clone()));
        }
        weights::write(&folder.join(TENSORS), &tensors)?;
        let path = folder.join(NUMBERS);
        let state = State { format: FORMAT, ..state.clone() };
        let text = serde_json::to_string_pretty(&state)
            .map_err(|error| TrainError::about_weights(&path, error.to_string()))?;
        fs::write(&path, text).map_err(|error| TrainError::about_file(&path, error))
    }

    /// Goes on from `saved`.
    pub fn restore_into(
        &self,
        saved: Saved,
        optimizer: &mut dyn Optimizer,
        scaler: Option<&mut GradScaler>,
    ) -> Result<State, TrainError> {
        let Saved { state, mut tensors } = saved;
        let missing = |name: &str| TrainError::Vocabulary(format!("the checkpoint has no `{name}`"));
        let scale = tensors.remove("scaler.scale").zip(tensors.remove("scaler.growth_tracker"));
        if let (Some(scaler), Some((scale, tracker))) = (scaler, scale) {
            scaler.restore(&scale, &tracker)?;
        }
        let generator = Generator::take_states(&mut tensors, self.rank)?;
        for (name, tensor) in tensors {
            let of = name.strip_prefix("optimizer.").and_then(|rest| rest.split_once('.'));
            let (kind, parameter) = of.ok_or_else(|| missing(&name))?;
            let at = self.names.iter().position(|known| known == parameter).ok_or_else(|| {
                TrainError::Vocabulary(format!("the checkpoint has a state of `{parameter}`, which this model has not"))
            })?;
            optimizer.restore(self.torch, at, kind, tensor)?;
        }
        // Last: what was done before may have drawn.
        generator.restore(self.torch, self.device)?;
        Ok(state)
    }
}

impl Saved {
    /// Reads what lies in a checkpoint's folder beside its weights.
    ///
    /// # Errors
    /// When it is damaged, or of a newer version.
    pub fn read(torch: &'static Torch, folder: &Path) -> Result<Self, TrainError> {
        let state = State::read(folder)?;
        Ok(Self { state, tensors: Reader::open(&folder.join(TENSORS))?.all(torch)? })
    }
}

impl State {
    /// The numbers of a checkpoint.
    ///
    /// # Errors
    /// When they are damaged, or of a newer version.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(NUMBERS);
        let text = fs::read(&path).map_err(|error| TrainError::about_file(&path, error))?;
        let state: Self = serde_json::from_slice(&text)
            .map_err(|error| TrainError::about_weights(&path, format!("is damaged: {error}")))?;
        if state.format > FORMAT {
            let problem = format!(
                "is of format {}, which a newer version of tonnage writes; this one reads {FORMAT}",
                state.format
            );
            return Err(TrainError::about_weights(&path, problem));
        }
        Ok(state)
    }

    /// # Errors
    /// When a training of `now` cannot go on from this checkpoint.
    pub(crate) fn require_same_training(&self, now: &Self, folder: &Path) -> Result<(), TrainError> {
        self.difference_from(now).map_or(Ok(()), |changed| Err(TrainError::another_training(folder, &changed)))
    }

    /// Why a training of `now` cannot go on from here, if so.
    fn difference_from(&self, now: &Self) -> Option<String> {
        let pairs = [
            (
                "rows of a step (micro_batch_size x gradient_accumulation_steps x ranks)",
                self.rows_per_step,
                now.rows_per_step,
            ),
            ("ranks (world_size)", self.ranks, now.ranks),
            (keys::SEQ_LEN, self.seq_len, now.seq_len),
            ("seed", self.seed, now.seed),
            ("rows of the data", self.rows, now.rows),
        ];
        let changed: Vec<String> = pairs
            .into_iter()
            .filter(|(_, then, now)| then != now)
            .map(|(what, then, now)| format!("{what} were {then} and are {now}"))
            .collect();
        (!changed.is_empty()).then(|| changed.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_training_is_told_by_what_changed() {
        let state = State { rows_per_step: 8, seq_len: 64, seed: 1, ranks: 1, rows: 100, ..State::default() };
        assert_eq!(state.difference_from(&State { step: 7, ..state.clone() }), None);
        let said = state.difference_from(&State { rows_per_step: 16, seed: 2, ..state.clone() }).unwrap();
        assert!(said.contains("were 8 and are 16") && said.contains("seed were 1 and are 2"), "{said}");
    }

    #[test]
    fn damaged_and_newer_states_are_said() {
        let folder = std::env::temp_dir().join(format!("tonnage-state-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (text, wanted) in [("{", "is damaged"), ("{\"format\": 9}", "damaged"), ("", "damaged")] {
            fs::write(folder.join(NUMBERS), text).unwrap();
            assert!(State::read(&folder).unwrap_err().to_string().contains(wanted), "{text}");
        }
        let newer = serde_json::to_string(&State { format: 9, ..State::default() }).unwrap();
        fs::write(folder.join(NUMBERS), newer).unwrap();
        assert!(State::read(&folder).unwrap_err().to_string().contains("newer version"));
        fs::remove_dir_all(folder).unwrap();
    }
}
