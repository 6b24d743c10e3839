//! [`Collection`]: which files of a checkout are recipes of training.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::hand_written;

/// A trainer that publishes recipes.
#[derive(Clone, Copy)]
pub enum Collection {
    /// Each YAML of `examples` with a base model.
    Axolotl,
    /// Each YAML of `examples` that trains: not those of accelerate, of inference and of merging.
    LlamaFactory,
    /// Each script of `examples` that starts verl on one node.
    Verl,
}

impl Collection {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Axolotl => "Axolotl",
            Self::LlamaFactory => "LLaMA-Factory",
            Self::Verl => "verl",
        }
    }

    /// As `--from` takes it.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Axolotl => "axolotl",
            Self::LlamaFactory => "llama-factory",
            Self::Verl => "verl",
        }
    }

    /// The recipes of a checkout, by their paths in it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn recipes(self, checkout: &Path) -> Result<Vec<PathBuf>> {
        let mut recipes = Vec::new();
        for path in files_below(&checkout.join("examples"))? {
            if self.is_recipe(&path)? {
                recipes.push(path.strip_prefix(checkout)?.to_path_buf());
            }
        }
        Ok(recipes)
    }

    fn is_recipe(self, path: &Path) -> Result<bool> {
        let ends: &[&str] = match self {
            Self::Verl => &["sh"],
            Self::Axolotl | Self::LlamaFactory => &["yaml", "yml"],
        };
        if !path.extension().is_some_and(|end| ends.iter().any(|known| end == *known)) {
            return Ok(false);
        }
        let text = hand_written(path)?;
        Ok(match self {
            Self::Axolotl => value_of(&text, "base_model").is_some(),
            Self::LlamaFactory => trains(&text),
            Self::Verl => text.contains("verl.") && starts_on_one_node(&text),
        })
    }
}

/// Whether a YAML of LLaMA-Factory names a model and is no inference, no export and no prediction alone.
fn trains(text: &str) -> bool {
    let of_version_0 = value_of(text, "model_name_or_path").is_some() && value_of(text, "do_train") == Some("true");
    let of_version_1 = value_of(text, "model").is_some() && value_of(text, "train_dataset").is_some();
    of_version_0 || of_version_1
}

/// The value of a key at the beginning of a line, less what is said of it behind `#`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let value = line.split(" #").next().unwrap_or_default().trim();
    (!value.is_empty()).then_some(value)
}

/// Whether a script's number of nodes, or its default for one, is 1; none said is one.
fn starts_on_one_node(text: &str) -> bool {
    let is_many = |line: &str| {
        let line = line.to_lowercase();
        let default = line.rsplit_once(":-").map_or(line.as_str(), |(_, default)| default);
        let said = line.split_once("nnodes=").or_else(|| line.split_once("num_nodes="));
        let count = said.map(|(_, said)| if said.starts_with("${") { default } else { said });
        let digits = count.map(|count| {
            count.trim_start_matches(['"', '\'']).chars().take_while(char::is_ascii_digit).collect::<String>()
        });
        digits.and_then(|digits| digits.parse::<u64>().ok()).is_some_and(|nodes| nodes > 1)
    };
    !text.lines().any(is_many)
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
