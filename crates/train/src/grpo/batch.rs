//! What generating and scoring makes, on the device, and how TRL shuffles and splits it (trl 1.16, trainer/utils.py).

use std::rc::Rc;

use tonnage_core::random::SplitMix64;
use tonnage_torch::operator;

use super::rollout::{Row, padded_left};
use super::tensors::{real_numbers, whole_numbers};
use crate::op::cat;
use crate::tensor::{Context, Tensor};

/// A generation batch, or the part of it that one pass trains on. The names are those of TRL's dictionary.
#[derive(Clone)]
pub(super) struct Batch {
    pub prompt_ids: Tensor,
    pub prompt_mask: Tensor,
    pub completion_ids: Tensor,
    pub completion_mask: Tensor,
    pub advantages: Option<Tensor>,
    pub num_items_in_batch: Tensor,
    pub old_per_token_logps: Option<Tensor>,
    pub ref_per_token_logps: Option<Tensor>,
}

/// How rows become tensors.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub pad: u32,
    /// Tokens that all rows have, where not as many as the longest: of prompts and of completions.
    pub lengths: Option<(u64, u64)>,
    /// Whether completions without an end teach nothing.
    pub masks_truncated: bool,
}

impl Batch {
    /// Prompts padded on the left, completions on the right.
    pub fn new(context: &Rc<Context>, rows: &[Row], shape: Shape) -> Self {
        let prompts: Vec<&[u32]> = rows.iter().map(|row| row.asked.tokens.as_slice()).collect();
        let (ids, mask, width) = padded_left(&prompts, shape.pad, shape.lengths.map(|lengths| lengths.0));
        let sizes = [rows.len() as u64, width];
        let (prompt_ids, prompt_mask) = (whole_numbers(context, &ids, &sizes), whole_numbers(context, &mask, &sizes));
        let longest = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(1).max(1);
        let width = shape.lengths.map_or(longest, |lengths| usize::try_from(lengths.1).unwrap_or(longest).max(longest));
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for row in rows {
            let counts = i64::from(!(shape.masks_truncated && row.is_truncated));
            ids.extend(row.tokens.iter().map(|token| i64::from(*token)));
            mask.extend(row.tokens.iter().map(|_| counts));
            let padding = width - row.tokens.len();
            ids.extend(std::iter::repeat_n(i64::from(shape.pad), padding));
            mask.extend(std::iter::repeat_n(0, padding));
        }
        let sizes = [rows.len() as u64, width as u64];
        let completion_ids = whole_numbers(context, &ids, &sizes);
        let completion_mask = whole_numbers(context, &mask, &sizes);
        let num_items_in_batch = completion_mask.sum_all().sum_all();
        Self {
            prompt_ids,
            prompt_mask,
            completion_ids,
            completion_mask,
            advantages: None,
            num_items_in_batch,
            old_per_token_logps: None,
            ref_per_token_logps: None,
        }
    }

    pub fn rows(&self) -> u64 {
        self.prompt_ids.size(0)
    }

    /// `advantages` on the device.
    pub fn take_advantages(&mut self, rows: &[Row]) {
        let numbers: Vec<f32> = rows.iter().map(|row| row.advantage as f32).collect();
        self.advantages = Some(real_numbers(self.prompt_ids.context(), &numbers, &[rows.len() as u64]));
    }

    /// `torch.cat` of prompts and completions: ids and mask.
    pub fn joined(&self) -> (Tensor, Tensor) {
        let ids = cat(&[&self.prompt_ids, &self.completion_ids], 1);
        (ids, cat(&[&self.prompt_mask, &self.completion_mask], 1))
    }

    /// The same with every tensor that has rows replaced; in the dictionary's order.
    fn map_tensors(&self, mut change: impl FnMut(&Tensor) -> Tensor) -> Self {
        Self {
            prompt_ids: change(&self.prompt_ids),
            prompt_mask: change(&self.prompt_mask),
            completion_ids: change(&self.completion_ids),
            completion_mask: change(&self.completion_mask),
            advantages: self.advantages.as_ref().map(&mut change),
            num_items_in_batch: self.num_items_in_batch.clone(),
            old_per_token_logps: self.old_per_token_logps.as_ref().map(&mut change),
            ref_per_token_logps: self.ref_per_token_logps.as_ref().map(&mut change),
        }
    }

    /// `shuffle_sequence_dict`, by a permutation of the seed.
    pub fn shuffled(&self, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut permutation: Vec<i64> = (0..i64::try_from(self.rows()).unwrap_or(0)).collect();
        for at in (1..permutation.len()).rev() {
            permutation.swap(at, random.index_below(at + 1));
        }
        let rows = [permutation.len() as u64];
        self.map_tensors(|tensor| tensor.rows_at(&whole_numbers(tensor.context(), &permutation, &rows)))
    }

    /// One of the views of `split_tensor_dict`, which all have as many rows.
    pub fn part(&self, at: u64, of: u64) -> Self {
        let rows = self.rows() / of.max(1);
        self.map_tensors(|tensor| tensor.narrow(0, at * rows..(at + 1) * rows))
    }

    /// All tensors with their names, for a checkpoint.
    pub fn named(&self) -> Vec<(String, tonnage_torch::Tensor)> {
        let optional = [
            ("advantages", &self.advantages),
            ("old_per_token_logps", &self.old_per_token_logps),
            ("ref_per_token_logps", &self.ref_per_token_logps),
        ];
        let always = [
            ("prompt_ids", &self.prompt_ids),
            ("prompt_mask", &self.prompt_mask),
            ("completion_ids", &self.completion_ids),
            ("completion_mask", &self.completion_mask),
            ("num_items_in_batch", &self.num_items_in_batch),
        ];
        let optional = optional.into_iter().filter_map(|(name, tensor)| Some((name, tensor.as_ref()?)));
        let all = always.into_iter().chain(optional);
        all.map(|(name, tensor)| (name.to_owned(), tensor.run(operator!("contiguous"), []).inner().clone())).collect()
    }

    /// From a checkpoint; the name of what is missing.
    pub fn from_named(mut take: impl FnMut(&str) -> Option<Tensor>) -> Result<Self, &'static str> {
        let mut needed = |name: &'static str| take(name).ok_or(name);
        Ok(Self {
            prompt_ids: needed("prompt_ids")?,
            prompt_mask: needed("prompt_mask")?,
            completion_ids: needed("completion_ids")?,
            completion_mask: needed("completion_mask")?,
            num_items_in_batch: needed("num_items_in_batch")?,
            advantages: Some(needed("advantages")?),
            old_per_token_logps: take("old_per_token_logps"),
            ref_per_token_logps: take("ref_per_token_logps"),
        })
    }
}
