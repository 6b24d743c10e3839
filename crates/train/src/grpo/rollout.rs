//! `_generate_single_turn` (trl 1.16, trainer/grpo_trainer.py): prompts to the device, padded on the left; completions back, up to their
//! ends; whole groups after one another.

use std::rc::Rc;

use super::asker::Asked;
use super::generate::{Generation, generate};
use super::policy::Policy;
use super::tensors::whole_numbers;
use crate::data::tokenizer::Tokenizer;
use crate::dtype::DType;
use crate::error::TrainError;
use crate::op::{arange, filled};
use crate::tensor::{Tensor, caught, or_stop};

/// A completion with its question. Completions of one question follow one another.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub asked: Rc<Asked>,
    /// With the token that ended it, where one did.
    pub tokens: Vec<u32>,
    /// Whether it was cut off.
    pub is_truncated: bool,
    /// Without the token that ended it.
    pub text: String,
    pub reward: f64,
    pub advantage: f64,
}

/// A model with what it generates by.
pub(super) struct Sampler<'a> {
    pub policy: &'a Policy<'a>,
    pub tokenizer: &'a Tokenizer,
    pub how: Generation,
    /// Tokens after which the host cuts a completion off.
    pub ends: &'a [u32],
    /// Whether numbers mean anything.
    pub reads_values: bool,
    /// Tokens that each prompt is padded to, where not to the longest.
    pub prompt_len: Option<u64>,
}

impl Sampler<'_> {
    /// A completion of each question, a row each, in one batch.
    ///
    /// # Errors
    /// PyTorch's, and tokens that are none of the tokenizer's.
    pub fn complete(&self, questions: &[Rc<Asked>]) -> Result<Vec<Row>, TrainError> {
        let _no_grad = self.policy.context().torch.no_grad();
        let completions = caught(|| self.generate_single_turn(questions))?;
        questions.iter().zip(completions).map(|(asked, tokens)| self.row(asked, tokens)).collect()
    }

    fn generate_single_turn(&self, questions: &[Rc<Asked>]) -> Vec<Vec<i64>> {
        let context = self.policy.context();
        let prompts: Vec<&[u32]> = questions.iter().map(|asked| asked.tokens.as_slice()).collect();
        let (ids, mask, prompt_len) = padded_left(&prompts, self.how.pad, self.prompt_len);
        let sizes = [questions.len() as u64, prompt_len];
        let (ids, mask) = (whole_numbers(context, &ids, &sizes), whole_numbers(context, &mask, &sizes));
        let prompt_completion_ids = generate(self.policy, &ids, &mask, &self.how);
        let end = prompt_completion_ids.size(1);
        let completion_ids = prompt_completion_ids.narrow(1, prompt_len..end);
        if !self.how.ends.is_empty() {
            self.mask_to_ends(&completion_ids);
        }
        let width = usize::try_from(end - prompt_len).unwrap_or(usize::MAX).max(1);
        let flat = or_stop(completion_ids.inner().to_vec::<i64>());
        flat.chunks(width).map(<[i64]>::to_vec).collect()
    }

    /// TRL masks what comes after the first end; here the host does it, and these are its tensors.
    fn mask_to_ends(&self, completion_ids: &Tensor) {
        let context = self.policy.context();
        let (rows, tokens) = (completion_ids.size(0), completion_ids.size(1));
        let ends: Vec<i64> = self.how.ends.iter().map(|end| i64::from(*end)).collect();
        let is_eos = completion_ids.is_in(&whole_numbers(context, &ends, &[ends.len() as u64]));
        let _eos_idx = filled(context, &[rows], tokens as f64, DType::Int64);
        let first = is_eos.to(DType::Int32).argmax_last();
        let sequence_indices = arange(context, tokens);
        let is_before = sequence_indices.expand(&[rows, tokens]).le_tensor(&first.unsqueeze(1));
        let _completion_mask = is_before.to(DType::Int32);
    }

    fn row(&self, asked: &Rc<Asked>, tokens: Vec<i64>) -> Result<Row, TrainError> {
        let mut tokens: Vec<u32> = tokens.into_iter().map(|token| u32::try_from(token).unwrap_or(0)).collect();
        let mut row = Row {
            asked: Rc::clone(asked),
            tokens: Vec::new(),
            is_truncated: true,
            text: String::new(),
            reward: 0.0,
            advantage: 0.0,
        };
        if self.reads_values && !self.how.to_full_length {
            if let Some(end) = tokens.iter().position(|token| self.ends.contains(token)) {
                tokens.truncate(end + 1);
                row.is_truncated = false;
            }
            let said = if row.is_truncated { &tokens[..] } else { &tokens[..tokens.len() - 1] };
            row.text = self.tokenizer.decode(said)?;
        }
        row.tokens = tokens;
        Ok(row)
    }
}

/// Prompts and their masks, padded on the left to the longest, or to `wanted` tokens.
pub(super) fn padded_left(prompts: &[&[u32]], pad: u32, wanted: Option<u64>) -> (Vec<i64>, Vec<i64>, u64) {
    let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(1).max(1);
    let width = wanted.map_or(longest, |wanted| usize::try_from(wanted).unwrap_or(longest).max(longest));
    let (mut ids, mut mask) = (Vec::new(), Vec::new());
    for prompt in prompts {
        let padding = width - prompt.len();
        ids.extend(std::iter::repeat_n(i64::from(pad), padding).chain(prompt.iter().map(|token| i64::from(*token))));
        mask.extend((0..width).map(|at| i64::from(at >= padding)));
    }
    (ids, mask, width as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_end_together() {
        let (ids, mask, width) = padded_left(&[&[1, 2, 3], &[4]], 9, None);
        assert_eq!((ids.as_slice(), mask.as_slice(), width), (&[1, 2, 3, 9, 9, 4][..], &[1, 1, 1, 0, 0, 1][..], 3));
        assert_eq!(padded_left(&[&[7]], 0, Some(3)).0, [0, 0, 7]);
    }
}
