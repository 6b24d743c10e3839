//! A model's folder, read to generate: config, weights, tokenizer, how it generates.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tonnage_core::job::{GenerationSpec, JobSpec};
use tonnage_torch::{Device, Torch};

use crate::data::tokenizer::Tokenizer;
use crate::data::vocabulary::Vocabulary;
use crate::error::TrainError;
use crate::generate::{Generated, Generator, Writer};
use crate::language_model::{LanguageModel, Weights};
use crate::program::{ends_of, vocabulary_of};
use crate::store::adapter::Adapted;
use crate::store::checkpoints::Checkpoints;
use crate::store::pretrained::Pretrained;

/// A model that can generate.
pub struct Author {
    torch: &'static Torch,
    device: Device,
    model: LanguageModel,
    tokenizer: Tokenizer,
    ends: Vec<u32>,
    positions: Option<u64>,
    vocabulary: u64,
}

/// What was generated, as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Behind the prompt.
    pub text: String,
    /// Its tokens, and why they end.
    pub generated: Generated,
    /// Of the prompt.
    pub prompt_tokens: u64,
}

/// The model's folder that `folder` means: itself, or its newest checkpoint.
///
/// # Errors
/// When it holds neither.
pub fn model_in(folder: &Path) -> Result<PathBuf, TrainError> {
    let is_model = |folder: &Path| folder.join("config.json").is_file() || folder.join("adapter_config.json").is_file();
    if is_model(folder) {
        return Ok(folder.to_owned());
    }
    match Checkpoints::new(folder, 1).newest()? {
        Some((_, path)) if is_model(&path) => Ok(path),
        _ => Err(TrainError::about_weights(folder, "holds neither a config.json nor a checkpoint of a training")),
    }
}

/// How a model generates where nobody says: its generation_config.json.
///
/// # Errors
/// When it is damaged.
pub fn generation_in(folder: &Path) -> Result<GenerationSpec, TrainError> {
    let path = folder.join("generation_config.json");
    let Ok(text) = fs::read(&path) else { return Ok(GenerationSpec::default()) };
    let damaged = |error: serde_json::Error| TrainError::about_weights(&path, format!("is damaged: {error}"));
    let mut read: Value = serde_json::from_slice(&text).map_err(damaged)?;
    // transformers writes `null` where it means its default.
    if let Some(fields) = read.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    serde_json::from_value(read).map_err(damaged)
}

impl Author {
    /// The model of `job`, whose weights lie in `folder`; an adapter's lie there, and its model's in `base`.
    ///
    /// # Errors
    /// When weights are missing or of another model, or the device has no room.
    pub fn open(
        torch: &'static Torch,
        device: Device,
        job: &JobSpec,
        folder: &Path,
        base: Option<&Path>,
    ) -> Result<Self, TrainError> {
        let model = match base {
            Some(base) => {
                let mut adapted = Adapted::open(Some(base), Some(folder))?;
                LanguageModel::build_model(torch, device, job, Weights::Named(&mut |name| adapted.tensor(torch, name)))?
            }
            None => {
                let missing = || TrainError::about_weights(folder, "holds no model.safetensors");
                let mut weights = Pretrained::open(folder)?.ok_or_else(missing)?;
                LanguageModel::build_model(torch, device, job, Weights::Named(&mut |name| weights.tensor(torch, name)))?
            }
        };
        model.train(false);
        let beside = |folder: Option<&Path>| folder.map(Tokenizer::beside).transpose().map(Option::flatten);
        let tokenizer = beside(Some(folder))?.or(beside(base)?).unwrap_or(Tokenizer::Vocabulary(Vocabulary::Bytes));
        let config = &job.model.config;
        let of_config =
            ["max_position_embeddings", "n_positions"].into_iter().find_map(|key| config.get(key)?.as_u64());
        // The guide's small GPT has a position for each token of a row of its data.
        let positions = if model.keeps_keys() { of_config } else { Some(job.seq_len) };
        let positions = [positions, LanguageModel::longest_row(job)].into_iter().flatten().min();
        let vocabulary = vocabulary_of(job).unwrap_or_else(|| tokenizer.size());
        Ok(Self { torch, device, model, ends: ends_of(job), tokenizer, positions, vocabulary })
    }

    /// Continues `prompt`; `hear` gets the text as it grows.
    ///
    /// # Errors
    /// When the prompt has what the tokenizer has not, or none at all, and PyTorch's.
    pub fn write(
        &self,
        prompt: &str,
        how: &GenerationSpec,
        seed: u64,
        hear: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Written, TrainError> {
        let tokens = self.tokenizer.encode(prompt, true)?;
        let mut told = Told { tokenizer: &self.tokenizer, tokens: Vec::new(), said: 0 };
        let mut hear_token = |token| told.more(token).is_none_or(|text| hear(&text));
        let writer = Writer {
            model: &self.model,
            torch: self.torch,
            device: self.device,
            positions: self.positions,
            vocabulary: self.vocabulary,
        };
        let generated =
            Generator::new(&writer, how.clone(), self.ends.clone(), seed).generate(&tokens, &mut hear_token)?;
        let kept = generated.tokens.iter().copied().filter(|token| !self.ends.contains(token)).collect::<Vec<_>>();
        let text = self.tokenizer.decode(&kept)?;
        if let Some(rest) = text.get(told.said..).filter(|rest| !rest.is_empty()) {
            hear(rest);
        }
        Ok(Written { text, generated, prompt_tokens: tokens.len() as u64 })
    }
}

/// Tells text as soon as its characters are whole.
struct Told<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<u32>,
    said: usize,
}

impl Told<'_> {
    fn more(&mut self, token: u32) -> Option<String> {
        self.tokens.push(token);
        // A token may be a part of a character, which is decoded to U+FFFD until it is whole.
        let text = self.tokenizer.decode(&self.tokens).ok()?;
        let new = text.get(self.said..).filter(|new| !new.is_empty() && !new.ends_with('\u{fffd}'))?.to_owned();
        self.said = text.len();
        Some(new)
    }
}
