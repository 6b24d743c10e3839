//! The weights beside a config: how many parameters their safetensors headers count. Only headers are read.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tonnage_core::job::{WeightsBeside, safetensors};
use tonnage_core::limit::{INDEX_BYTES, SAFETENSORS_HEADER_BYTES};
use tonnage_run::bounded::read_text;

use crate::failure::Failure;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The weights in the folder `path`, or beside the config at `path`.
pub fn weights_beside(path: &Path) -> WeightsBeside {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
    let found = if single.exists() {
        count_tensors(&single).map(WeightsBeside::Counted)
    } else if index.exists() {
        sharded_weights(folder, &index)
    } else {
        Ok(WeightsBeside::Absent)
    };
    found.unwrap_or_else(|failure| WeightsBeside::Unreadable { problem: failure.problem, hint: failure.hint })
}

fn sharded_weights(folder: &Path, index: &Path) -> Result<WeightsBeside, Failure> {
    let text = read_text(index, INDEX_BYTES).map_err(|error| Failure::about_file(&shown_path(index), &error))?;
    let index = safetensors::parse_index(&text).map_err(|error| about_weights(index, &error))?;
    let (files, counted) = (index.files, index.parameters);
    // A name from a file stays inside the folder.
    let inside = |name: &String| Path::new(name).file_name().map(|name| folder.join(name));
    let paths: Vec<PathBuf> = files.iter().filter_map(inside).collect();
    match paths.iter().find(|path| !path.exists()) {
        Some(missing) => {
            Ok(counted.map_or_else(|| WeightsBeside::Incomplete(shown_path(missing)), WeightsBeside::Counted))
        }
        None => paths.iter().map(|path| count_tensors(path)).sum::<Result<u64, Failure>>().map(WeightsBeside::Counted),
    }
}

fn count_tensors(path: &Path) -> Result<u64, Failure> {
    let header = read_header(path).map_err(|error| Failure::about_file(&shown_path(path), &error))?;
    let weights = safetensors::parse_header(&header).map_err(|error| about_weights(path, &error))?;
    Ok(weights.parameters)
}

/// The length field and as much of the header as there is.
fn read_header(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(8).read_to_end(&mut bytes)?;
    let length = bytes.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length));
    if length <= SAFETENSORS_HEADER_BYTES {
        file.take(length).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

fn about_weights(path: &Path, error: &impl std::fmt::Display) -> Failure {
    Failure::bad_input(format!("{}: {error}", shown_path(path)))
        .with_hint("download it again, or move it away to do without")
}
