//! The newest complete checkpoint: `checkpoint-N` as Hugging Face's Trainer writes it. One that was torn by a death is
//! told by what it lacks, or by a weight file shorter than its own header says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tonnage_core::job::safetensors::data_bytes;
use tonnage_core::limit::{INDEX_BYTES, SAFETENSORS_HEADER_BYTES, TRAINER_STATE_BYTES};
use tonnage_core::progress::Progress;

use crate::bounded::read_text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub step: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// What is read of a `trainer_state.json`; the rest of it is the log.
#[derive(Deserialize)]
struct TrainerState {
    global_step: Option<u64>,
    max_steps: Option<u64>,
}

/// The index of weights in several files.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The newest complete one below `folder`, and the torn ones that are newer.
pub fn newest_checkpoint(folder: &Path) -> (Option<Checkpoint>, Vec<(Checkpoint, String)>) {
    let mut all = all_checkpoints(folder);
    all.small_sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.step));
    let mut torn = Vec::new();
    for checkpoint in all {
        match check_complete(&checkpoint) {
            Ok(()) => return (Some(checkpoint), torn),
            Err(why) => torn.push((checkpoint, why)),
        }
    }
    (None, torn)
}

fn all_checkpoints(folder: &Path) -> Vec<Checkpoint> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let checkpoint = |path: PathBuf| {
        let step = path.file_name()?.to_str()?.strip_prefix("checkpoint-")?.parse().ok()?;
        path.is_dir().then_some(Checkpoint { step, path })
    };
    entries.filter_map(|entry| checkpoint(entry.path())).collect()
}

/// Where the newest readable `trainer_state.json` below `folder` says that the training is, if that is beyond a step.
pub fn saved_progress(folder: &Path, beyond: u64) -> Option<Progress> {
    let mut newer: Vec<Checkpoint> =
        all_checkpoints(folder).into_iter().filter(|checkpoint| checkpoint.step > beyond).collect();
    newer.small_sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.step));
    newer.iter().find_map(|checkpoint| {
        let state: TrainerState = read_json(&checkpoint.path.join("trainer_state.json"), TRAINER_STATE_BYTES).ok()?;
        let step = state.global_step.filter(|step| *step == checkpoint.step)?;
        Some(Progress { step, total: state.max_steps.filter(|most| *most >= step), ..Progress::default() })
    })
}

/// Whether everything is there; the Trainer writes its state last but for the random states.
fn check_complete(checkpoint: &Checkpoint) -> Result<(), String> {
    let state: TrainerState = read_json(&checkpoint.path.join("trainer_state.json"), TRAINER_STATE_BYTES)?;
    if state.global_step != Some(checkpoint.step) {
        return Err("trainer_state.json is of another step".to_owned());
    }
    let files = weight_files(&checkpoint.path)?;
    if files.is_empty() {
        return Err("no weights".to_owned());
    }
    files.iter().try_for_each(|file| check_whole(&checkpoint.path.join(file)))?;
    ["optimizer.pt", "scheduler.pt"].iter().try_for_each(|name| whole_zip_if_there(&checkpoint.path.join(name)))
}

fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<T, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = read_text(path, most).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("no {name}"),
        _ => format!("{name}: {error}"),
    })?;
    serde_json::from_str(&text).map_err(|_| format!("{name} is cut off"))
}

/// The files that hold the weights: those of an index, or the single one.
fn weight_files(folder: &Path) -> Result<Vec<String>, String> {
    for index in ["model.safetensors.index.json", "pytorch_model.bin.index.json"] {
        if folder.join(index).exists() {
            let index: Index = read_json(&folder.join(index), INDEX_BYTES)?;
            let files: BTreeSet<String> = index.weight_map.into_values().collect();
            return Ok(files.into_iter().collect());
        }
    }
    let names = ["model.safetensors", "adapter_model.safetensors", "pytorch_model.bin", "adapter_model.bin"];
    Ok(names.iter().filter(|name| folder.join(name).exists()).map(|name| (*name).to_owned()).collect())
}

fn check_whole(path: &Path) -> Result<(), String> {
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        whole_safetensors(path)
    } else if path.exists() {
        whole_zip_if_there(path)
    } else {
        Err(missing_file(path))
    }
}

fn missing_file(path: &Path) -> String {
    format!("no {}", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Eight bytes of length, a JSON header with the end of every tensor, then the tensors.
fn whole_safetensors(path: &Path) -> Result<(), String> {
    let cut = || format!("{} is cut off", path.file_name().unwrap_or_default().to_string_lossy());
    let mut file = File::open(path).map_err(|_| missing_file(path))?;
    let size = file.metadata().map_err(|_| cut())?.len();
    let mut header = vec![0; 8];
    file.read_exact(&mut header).map_err(|_| cut())?;
    let length = header.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    if length > SAFETENSORS_HEADER_BYTES || length + 8 > size {
        return Err(cut());
    }
    file.take(length).read_to_end(&mut header).map_err(|_| cut())?;
    let end = data_bytes(&header).map_err(|_| cut())?;
    if (8 + length).checked_add(end) == Some(size) { Ok(()) } else { Err(cut()) }
}

/// What `torch.save` writes is a zip file, whose directory comes last.
fn whole_zip_if_there(path: &Path) -> Result<(), String> {
    let Ok(bytes) = end_of(path, 64 << 10) else { return Ok(()) };
    // The end-of-central-directory record (PKWARE APPNOTE 4.3.16).
    if bytes.windows(4).any(|four| four == b"PK\x05\x06") {
        Ok(())
    } else {
        Err(format!("{} is cut off", path.file_name().unwrap_or_default().to_string_lossy()))
    }
}

fn end_of(path: &Path, bytes: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, step: u64, cut: u64) {
        let folder = folder.join(format!("checkpoint-{step}"));
        fs::create_dir_all(&folder).unwrap();
        let header = br#"{"w":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header);
        file.extend(std::iter::repeat_n(0, 16 - usize::try_from(cut).unwrap()));
        fs::write(folder.join("model.safetensors"), file).unwrap();
        fs::write(folder.join("trainer_state.json"), format!("{{\"global_step\": {step}}}")).unwrap();
    }

    #[test]
    fn offsets_without_bounds_are_no_whole_file() {
        let path = std::env::temp_dir().join(format!("tonnage-offsets-{}.safetensors", std::process::id()));
        for end in [u64::MAX, u64::MAX - 8, u64::MAX - 7] {
            let header = format!("{{\"w\":{{\"data_offsets\":[0,{end}]}}}}");
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(header.as_bytes());
            fs::write(&path, bytes).unwrap();
            assert!(whole_safetensors(&path).is_err(), "{end}");
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_newest_complete_one_is_found() {
        let folder = std::env::temp_dir().join(format!("tonnage-checkpoints-{}", std::process::id()));
        write(&folder, 5, 0);
        write(&folder, 10, 0);
        write(&folder, 15, 1);
        write(&folder, 20, 0);
        fs::write(folder.join("checkpoint-20/trainer_state.json"), "{\"global_").unwrap();
        write(&folder, 25, 0);
        fs::write(folder.join("checkpoint-25/optimizer.pt"), "PK\x03\x04 cut").unwrap();
        let (found, torn) = newest_checkpoint(&folder);
        assert_eq!(found.map(|checkpoint| checkpoint.step), Some(10));
        let torn: Vec<_> = torn.iter().map(|(checkpoint, why)| (checkpoint.step, why.as_str())).collect();
        assert_eq!(
            torn,
            [
                (25, "optimizer.pt is cut off"),
                (20, "trainer_state.json is cut off"),
                (15, "model.safetensors is cut off")
            ]
        );
        assert_eq!(newest_checkpoint(&folder.join("none")), (None, Vec::new()));
        fs::remove_dir_all(folder).unwrap();
    }
}
