//! The weights of a model's folder, by their names: one file, or several with an index, as transformers writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use serde::Deserialize;
use tonnage_torch::{Tensor, Torch};

use super::weights::Reader;
use crate::error::TrainError;

const ONE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// An index of a 405B model has 100 KB.
const MOST_INDEX: u64 = 64 << 20;

/// Weights that are read when they are asked for.
#[derive(Debug)]
pub struct Pretrained {
    folder: PathBuf,
    readers: Vec<Reader>,
    /// The reader of each name.
    places: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Pretrained {
    /// The weights in `folder`, where there are any.
    ///
    /// # Errors
    /// When a file is damaged, or one that the index names is not there.
    pub fn open(folder: &Path) -> Result<Option<Self>, TrainError> {
        let files = if folder.join(ONE).is_file() {
            vec![folder.join(ONE)]
        } else if folder.join(INDEX).is_file() {
            files_of(&folder.join(INDEX), folder)?
        } else if let Some(old) = other_weights(folder) {
            return Err(TrainError::about_weights(
                &old,
                "is a pickle, which is not read: convert it to model.safetensors with save_pretrained",
            ));
        } else {
            return Ok(None);
        };
        let mut weights = Self { folder: folder.to_owned(), readers: Vec::new(), places: BTreeMap::new() };
        for file in files {
            let reader = Reader::open(&file)?;
            let at = weights.readers.len();
            weights.places.extend(reader.names().into_iter().map(|name| (name, at)));
            weights.readers.push(reader);
        }
        Ok(Some(weights))
    }

    /// The weight called `name`, on the CPU. Files of models without a head leave the name of the part with one out
    /// (`wte.weight` for `transformer.wte.weight`).
    ///
    /// # Errors
    /// When its bytes cannot be read.
    pub fn tensor(&mut self, torch: &'static Torch, name: &str) -> Result<Option<Tensor>, TrainError> {
        let without = name.split_once('.').map(|(_, rest)| rest);
        let found = [Some(name), without].into_iter().flatten().find_map(|name| Some((*self.places.get(name)?, name)));
        let Some((at, name)) = found else { return Ok(None) };
        match self.readers.get_mut(at) {
            Some(reader) => reader.tensor(torch, name),
            None => Ok(None),
        }
    }

    /// Where they lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn files_of(index: &Path, folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    let bytes = fs::metadata(index).map_err(|error| TrainError::about_file(index, error))?.len();
    if bytes > MOST_INDEX {
        return Err(TrainError::about_weights(index, format!("{bytes} bytes are no index of weights")));
    }
    let text = fs::read(index).map_err(|error| TrainError::about_file(index, error))?;
    let read: Index = serde_json::from_slice(&text)
        .map_err(|error| TrainError::about_weights(index, format!("is damaged: {error}")))?;
    let mut names: Vec<String> = read.weight_map.into_values().collect();
    names.small_sort();
    names.dedup();
    // A name with a folder in it would lead out of this one.
    if let Some(name) = names.iter().find(|name| Path::new(name).components().count() != 1 || name.contains("..")) {
        return Err(TrainError::about_weights(index, format!("names `{name}`, which is no file of this folder")));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Weights of an older form, which are programs.
fn other_weights(folder: &Path) -> Option<PathBuf> {
    ["pytorch_model.bin", "pytorch_model.bin.index.json"]
        .into_iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tonnage-pretrained-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn weights(path: &Path, name: &str) {
        let header = format!("{{\"{name}\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}}}");
        fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat()).unwrap();
    }

    #[test]
    fn an_index_names_the_files_and_only_those_beside_it() {
        let folder = folder("index");
        assert!(Pretrained::open(&folder).unwrap().is_none());
        weights(&folder.join("a.safetensors"), "x");
        fs::write(folder.join(INDEX), r#"{"weight_map": {"x": "a.safetensors"}}"#).unwrap();
        assert_eq!(Pretrained::open(&folder).unwrap().unwrap().places.len(), 1);
        for (index, wanted) in [
            (r#"{"weight_map": {"x": "b.safetensors"}}"#, "b.safetensors"),
            (r#"{"weight_map": {"x": "../a.safetensors"}}"#, "no file of this folder"),
            ("[]", "is damaged"),
        ] {
            fs::write(folder.join(INDEX), index).unwrap();
            let error = Pretrained::open(&folder).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn pickles_are_not_read() {
        let folder = folder("pickle");
        fs::write(folder.join("pytorch_model.bin"), "").unwrap();
        assert!(Pretrained::open(&folder).unwrap_err().to_string().contains("save_pretrained"));
        fs::remove_dir_all(folder).unwrap();
    }
}
