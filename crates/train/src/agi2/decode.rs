//! Generation: this model has no cache.

use tonnage_torch::{Argument, Tensor, Torch, operator};

use super::Agi2;
use crate::error::TrainError;
use crate::generate::Decoder;

/// All tokens so far: this model has no keys and values to keep.
impl Decoder for Agi2 {
    type Cache = Option<Tensor>;

    fn new_cache(&self) -> Self::Cache {
        None
    }

    fn next(&self, input_ids: &Tensor, cache: &mut Self::Cache) -> Result<Tensor, TrainError> {
        let all = match cache.take() {
            Some(before) => {
                let both = Argument::tensors([&before, input_ids]);
                self.torch.call(operator!("cat"), &[both, 1_i64.into()])?.tensor()?
            }
            None => input_ids.clone(),
        };
        let logits = self.logits(&all)?;
        *cache = Some(all);
        Ok(self.torch.call(operator!("select", "int"), &[(&logits).into(), 1_i64.into(), (-1_i64).into()])?.tensor()?)
    }

    fn select_rows(&self, cache: &mut Self::Cache, rows: &Tensor) -> Result<(), TrainError> {
        if let Some(all) = cache.take() {
            let arguments = [(&all).into(), 0_i64.into(), rows.into()];
            *cache = Some(self.torch.call(operator!("index_select"), &arguments)?.tensor()?);
        }
        Ok(())
    }

    fn numbers(&self, numbers: &[i64], sizes: &[i64]) -> Result<Tensor, TrainError> {
        Ok(self.torch.tensor(numbers, sizes)?.to_device(self.device)?)
    }

    fn torch(&self) -> &'static Torch {
        self.torch
    }

    fn most_tokens(&self) -> Option<u64> {
        self.positions.sizes().first().map(|rows| *rows as u64)
    }

    fn vocabulary(&self) -> u64 {
        self.embedding.sizes().first().map_or(0, |rows| *rows as u64)
    }
}
