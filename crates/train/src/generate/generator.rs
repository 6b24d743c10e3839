//! Generation over a KV cache: the prompt in one pass, then a token a pass.

use tonnage_core::job::GenerationSpec;
use tonnage_torch::{Tensor, Torch, operator};

use super::choose::Chooser;
use crate::error::TrainError;

/// A model that continues texts: a cache grows with each call.
pub trait Decoder {
    /// What is kept of the tokens that went in.
    type Cache;

    /// A cache without keys and values.
    fn new_cache(&self) -> Self::Cache;

    /// The logits of the last position of each row, after `input_ids` (rows times tokens) behind what the cache has: rows times
    /// vocabulary.
    ///
    /// # Errors
    /// PyTorch's.
    fn next(&self, input_ids: &Tensor, cache: &mut Self::Cache) -> Result<Tensor, TrainError>;

    /// Makes row `i` of the cache what row `rows[i]` was.
    ///
    /// # Errors
    /// PyTorch's.
    fn select_rows(&self, cache: &mut Self::Cache, rows: &Tensor) -> Result<(), TrainError>;

    /// A tensor of numbers on the model's device.
    ///
    /// # Errors
    /// PyTorch's.
    fn numbers(&self, numbers: &[i64], sizes: &[i64]) -> Result<Tensor, TrainError>;

    /// The loaded libtorch.
    fn torch(&self) -> &'static Torch;

    /// Tokens that a text may have; `None` where there is no end.
    fn most_tokens(&self) -> Option<u64>;

    /// Rows of the embedding.
    fn vocabulary(&self) -> u64;
}

/// Why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A token that ends texts.
    EndOfText,
    /// As long as was asked for.
    Length,
    /// The model has no more positions.
    Positions,
    /// Whoever listens has heard enough.
    Listener,
}

/// A text's tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Behind the prompt.
    pub tokens: Vec<u32>,
    /// Sum of the tokens' natural logarithms of probability; of beams over the length, as beams are ranked.
    pub score: f64,
    /// Why it ends.
    pub stop: Stop,
}

/// Generates with a model.
pub struct Generator<'a, D: Decoder> {
    pub(super) decoder: &'a D,
    pub(super) how: GenerationSpec,
    /// Tokens that end a text.
    pub(super) ends: Vec<u32>,
    seed: u64,
}

impl<'a, D: Decoder> Generator<'a, D> {
    /// As `how` says; tokens in `ends` end a text.
    pub fn new(decoder: &'a D, how: GenerationSpec, ends: Vec<u32>, seed: u64) -> Self {
        Self { decoder, how, ends, seed }
    }

    /// Continues `prompt`; `hear` gets each token as it comes and says whether to go on. Beams are heard at their end.
    ///
    /// # Errors
    /// When the prompt is empty, too long or of another vocabulary, and PyTorch's.
    pub fn generate(&self, prompt: &[u32], hear: &mut dyn FnMut(u32) -> bool) -> Result<Generated, TrainError> {
        let room = self.room(prompt)?;
        let _no_grad = self.decoder.torch().no_grad();
        if self.how.num_beams > 1 {
            let best = self.beam_search(prompt, room)?;
            best.tokens.iter().all(|token| hear(*token));
            return Ok(best);
        }
        self.one_by_one(prompt, room, hear)
    }

    /// Tokens that may come, and whether that is the model's limit.
    fn room(&self, prompt: &[u32]) -> Result<(u64, Stop), TrainError> {
        if prompt.is_empty() {
            return Err(TrainError::refused_with("the prompt has no token".to_owned(), "give it a word to begin with"));
        }
        let vocabulary = self.decoder.vocabulary();
        if let Some(token) = prompt.iter().find(|token| u64::from(**token) >= vocabulary) {
            return Err(TrainError::Vocabulary(format!(
                "token {token} of the prompt is beyond the model's {vocabulary}: the tokenizer is of another model"
            )));
        }
        let wanted = self.how.max_new_tokens;
        let Some(most) = self.decoder.most_tokens() else { return Ok((wanted, Stop::Length)) };
        let left = most.saturating_sub(prompt.len() as u64);
        if left == 0 {
            return Err(TrainError::refused_with(
                format!("the prompt has {} tokens, and the model {most} positions", prompt.len()),
                "shorten the prompt",
            ));
        }
        Ok(if left < wanted { (left, Stop::Positions) } else { (wanted, Stop::Length) })
    }

    fn one_by_one(
        &self,
        prompt: &[u32],
        (room, at_end): (u64, Stop),
        hear: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Generated, TrainError> {
        let mut chooser = Chooser::new(self.how.clone(), self.seed);
        let mut cache = self.decoder.new_cache();
        let mut ids = self.row(prompt)?;
        let mut generated = Generated { tokens: Vec::new(), score: 0.0, stop: at_end };
        while (generated.tokens.len() as u64) < room {
            let logits = self.decoder.next(&ids, &mut cache)?;
            let drawn = chooser.choose(&on_host(&logits)?).ok_or_else(no_number)?;
            generated.score += drawn.log_probability;
            generated.tokens.push(drawn.token);
            let is_end = self.ends.contains(&drawn.token);
            if is_end || !hear(drawn.token) {
                generated.stop = if is_end { Stop::EndOfText } else { Stop::Listener };
                break;
            }
            ids = self.row(&[drawn.token])?;
        }
        Ok(generated)
    }

    pub(super) fn row(&self, tokens: &[u32]) -> Result<Tensor, TrainError> {
        let numbers: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
        self.decoder.numbers(&numbers, &[1, numbers.len() as i64])
    }
}

pub(super) fn no_number() -> TrainError {
    TrainError::refused_with(
        "the model's logits are no numbers".to_owned(),
        "its weights are damaged, or its training diverged",
    )
}

/// Numbers in single precision, on the host.
pub(super) fn on_host(logits: &Tensor) -> Result<Vec<f32>, TrainError> {
    let torch = logits.torch();
    let single = [logits.into(), tonnage_torch::ScalarType::Float32.into()];
    Ok(torch.call(operator!("to", "dtype"), &single)?.tensor()?.to_vec()?)
}
