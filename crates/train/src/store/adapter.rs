//! LoRA adapters as peft keeps them: `adapter_model.safetensors` and `adapter_config.json` beside the model that they change.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tonnage_core::job::{LoraSpec, TrainingSpec};
use tonnage_torch::{Tensor, Torch};

use super::pretrained::Pretrained;
use super::weights::{self, Reader};
use crate::error::TrainError;

/// Names of peft's files.
const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
/// What peft puts before the names of the model that it wraps.
const WRAPPED: &str = "base_model.model.";

/// What is read of an adapter's config, and written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdapterConfig {
    /// `LORA`
    pub peft_type: String,
    /// `CAUSAL_LM`
    pub task_type: String,
    /// The folder or name of the model.
    pub base_model_name_or_path: String,
    /// The rank of LoRA's matrices.
    pub r: u64,
    /// Its factor, over its rank.
    pub lora_alpha: f64,
    /// Dropout on its input.
    pub lora_dropout: f64,
    /// Layers that have one: names, or `all-linear`.
    pub target_modules: Vec<String>,
    /// `none`
    pub bias: String,
}

impl AdapterConfig {
    /// Of a job.
    pub fn new(lora: &LoraSpec, training: &TrainingSpec, base: &Path) -> Self {
        Self {
            peft_type: "LORA".to_owned(),
            task_type: "CAUSAL_LM".to_owned(),
            base_model_name_or_path: base.display().to_string(),
            r: lora.r,
            lora_alpha: training.lora_alpha,
            lora_dropout: lora.dropout,
            target_modules: lora.targets.clone(),
            bias: "none".to_owned(),
        }
    }

    /// The one in `folder`, where there is one.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn read(folder: &Path) -> Result<Option<Self>, TrainError> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Ok(None);
        }
        let text = fs::read(&path).map_err(|error| TrainError::about_file(&path, error))?;
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| TrainError::about_weights(&path, format!("is no adapter's config: {error}")))
    }

    /// Writes it, and the adapter's weights of all that are `named`, into `folder`.
    ///
    /// # Errors
    /// When the disk has no room.
    pub fn write(&self, folder: &Path, named: &[(String, Tensor)]) -> Result<(), TrainError> {
        let adapter = named.iter().filter(|(name, _)| is_adapter(name));
        let adapter: Vec<_> = adapter.map(|(name, tensor)| (format!("{WRAPPED}{name}"), tensor.clone())).collect();
        weights::write(&folder.join(WEIGHTS), &adapter)?;
        let path = folder.join(CONFIG);
        let text =
            serde_json::to_string_pretty(self).map_err(|error| TrainError::about_weights(&path, error.to_string()))?;
        fs::write(&path, text).map_err(|error| TrainError::about_file(&path, error))
    }
}

fn is_adapter(name: &str) -> bool {
    name.contains(".lora_")
}

/// The weights of a model under an adapter.
pub struct Adapted {
    base: Pretrained,
    adapter: Option<Reader>,
}

impl Adapted {
    /// The model in `base`, and the adapter in `checkpoint`, where it was trained before.
    ///
    /// # Errors
    /// When there is no such model, or a file is damaged.
    pub fn open(base: Option<&Path>, checkpoint: Option<&Path>) -> Result<Self, TrainError> {
        let found = base.map(Pretrained::open).transpose()?.flatten();
        let base = found.ok_or_else(|| {
            TrainError::refused_with(
                "an adapter is of a model that was trained before, whose weights do not lie on this machine".to_owned(),
                "name the folder of the model's safetensors as `model`, or train without [lora]",
            )
        })?;
        let adapter = checkpoint.map(|folder| Reader::open(&folder.join(WEIGHTS))).transpose()?;
        Ok(Self { base, adapter })
    }

    /// The weight called `name`; `None` for an adapter's that is yet to be made.
    ///
    /// # Errors
    /// When its bytes cannot be read.
    pub fn tensor(&mut self, torch: &'static Torch, name: &str) -> Result<Option<Tensor>, TrainError> {
        if is_adapter(name) {
            let Some(adapter) = &mut self.adapter else { return Ok(None) };
            return adapter.tensor(torch, &format!("{WRAPPED}{name}"));
        }
        self.base.tensor(torch, name)
    }
}

/// Where a config says that its model lies.
pub fn base_folder(config: &AdapterConfig) -> PathBuf {
    PathBuf::from(&config.base_model_name_or_path)
}
