//! [`Writer`]: a language model that generates, over the keys and values of its tokens, or over all tokens where it keeps none.

use tonnage_torch::{Argument, Device, Tensor, Torch, operator};

use super::generator::Decoder;
use crate::cache::Cache;
use crate::error::TrainError;
use crate::language_model::{Call, LanguageModel};

/// A model that generates, with what its config says of its limits.
pub struct Writer<'a> {
    /// The model, without dropout.
    pub model: &'a LanguageModel,
    /// The loaded libtorch.
    pub torch: &'static Torch,
    /// Where it lies.
    pub device: Device,
    /// Positions that the model has; `None` where there is no end.
    pub positions: Option<u64>,
    /// `vocab_size`
    pub vocabulary: u64,
}

/// What is kept of the tokens that went in.
pub enum Seen {
    /// Their keys and values.
    Keys(Cache),
    /// Themselves: each pass is over all of them.
    Tokens(Option<Tensor>),
}

impl Decoder for Writer<'_> {
    type Cache = Seen;

    fn new_cache(&self) -> Seen {
        if self.model.keeps_keys() { Seen::Keys(self.model.new_cache()) } else { Seen::Tokens(None) }
    }

    fn next(&self, input_ids: &Tensor, seen: &mut Seen) -> Result<Tensor, TrainError> {
        let missing = || TrainError::Vocabulary("the model returned no logits".to_owned());
        match seen {
            Seen::Keys(cache) => {
                let call = Call { cache: Some(cache), logits_to_keep: Some(1), ..Call::of_tokens(input_ids) };
                self.model.forward(call)?.logits.ok_or_else(missing)
            }
            Seen::Tokens(before) => {
                let all = match before.take() {
                    Some(before) => {
                        let both = Argument::tensors([&before, input_ids]);
                        self.torch.call(operator!("cat"), &[both, 1_i64.into()])?.tensor()?
                    }
                    None => input_ids.clone(),
                };
                let logits = self.model.forward(Call::of_tokens(&all))?.logits.ok_or_else(missing)?;
                *before = Some(all);
                let last = [(&logits).into(), 1_i64.into(), (-1_i64).into()];
                Ok(self.torch.call(operator!("select", "int"), &last)?.tensor()?)
            }
        }
    }

    fn select_rows(&self, seen: &mut Seen, rows: &Tensor) -> Result<(), TrainError> {
        match seen {
            Seen::Keys(cache) => *cache = cache.select_rows(rows)?,
            Seen::Tokens(Some(all)) => {
                let arguments = [(&*all).into(), 0_i64.into(), rows.into()];
                *all = self.torch.call(operator!("index_select"), &arguments)?.tensor()?;
            }
            Seen::Tokens(None) => {}
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
        self.positions
    }

    fn vocabulary(&self) -> u64 {
        self.vocabulary
    }
}
