//! The shared model source as the loop and the generator see it.

use tonnage_torch::{Device, Tensor, Torch};

use super::model::{Forward, Outputs, Trainable};
use crate::cache::Cache;
use crate::error::TrainError;
use crate::generate::Decoder;
use crate::language_model::{Call, LanguageModel};

impl Trainable for LanguageModel {
    fn forward(&self, call: Forward<'_>) -> Result<Outputs, TrainError> {
        let cache = call.caches.then(|| self.new_cache());
        let asked = Call { labels: Some(call.labels), cache: cache.as_ref(), ..Call::of(call.input_ids) };
        let output = Self::forward(self, asked)?;
        let missing = || TrainError::Vocabulary("the model returned no loss for its labels".to_owned());
        Ok(Outputs { loss: output.loss.ok_or_else(missing)?, logits: output.logits, cache })
    }

    fn trained(&self) -> Vec<(String, Tensor)> {
        let trained = self.parameters().iter().filter(|parameter| parameter.is_trained);
        trained.map(|parameter| (parameter.name.clone(), parameter.tensor.clone())).collect()
    }

    fn train(&self, training: bool) {
        Self::train(self, training);
    }

    fn module_that_failed(&self) -> Option<String> {
        Self::module_that_failed(self)
    }
}

/// A model that generates, with what its config says of its limits.
pub struct Writer<'a> {
    /// The model, without dropout.
    pub model: &'a LanguageModel,
    /// The engine.
    pub torch: &'static Torch,
    /// Where it lies.
    pub device: Device,
    /// `max_position_embeddings`, `n_positions`, where the model has no more.
    pub positions: Option<u64>,
    /// `vocab_size`
    pub vocabulary: u64,
}

impl Decoder for Writer<'_> {
    type Cache = Cache;

    fn new_cache(&self) -> Cache {
        self.model.new_cache()
    }

    fn next(&self, input_ids: &Tensor, cache: &mut Cache) -> Result<Tensor, TrainError> {
        let call = Call { cache: Some(cache), logits_to_keep: Some(1), ..Call::of(input_ids) };
        let output = self.model.forward(call)?;
        output.logits.ok_or_else(|| TrainError::Vocabulary("the model returned no logits".to_owned()))
    }

    fn select_rows(&self, cache: &mut Cache, rows: &Tensor) -> Result<(), TrainError> {
        *cache = cache.select_rows(rows)?;
        Ok(())
    }

    fn numbers(&self, numbers: &[i64], sizes: &[i64]) -> Result<Tensor, TrainError> {
        Ok(self.torch.tensor(numbers, sizes)?.to_device(self.device)?)
    }

    fn torch(&self) -> &'static Torch {
        self.torch
    }

    fn most_tokens(&self) -> Option<u64> {
        self.positions
    }

    fn vocabulary(&self) -> u64 {
        self.vocabulary
    }
}
