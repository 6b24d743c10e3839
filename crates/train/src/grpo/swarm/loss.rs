//! GenRL's clipped objective over all rows at once (core/src/step/swarm.rs mirrors the same): the old policy is the one that is trained.

use std::rc::Rc;

use tonnage_core::job::{SwarmLogProbs, SwarmSpec};
use tonnage_torch::ScalarType;

use super::super::generate::positions_of;
use super::super::tensors::{real_numbers, whole_numbers};
use crate::language_model::Parts;
use crate::model::family::ForwardCall;
use crate::model::nn::Linear;
use crate::op::{Reduction, cat};
use crate::tensor::{Context, Tensor, checkpoint, or_stop};

/// What a step trains on.
pub(super) struct Batch {
    ids: Tensor,
    mask: Tensor,
    /// The completions' part of `ids`.
    target: Tensor,
    advantages: Tensor,
    /// The completions' part of `mask`.
    completion_mask: Tensor,
}

impl Batch {
    /// Of rows of one width, on the host; their last `completion_len` tokens are the completions'.
    pub fn new(context: &Rc<Context>, ids: &[i64], mask: &[i64], advantages: &[f32], completion_len: u64) -> Self {
        let rows = advantages.len() as u64;
        let width = ids.len() as u64 / rows.max(1);
        let ids = whole_numbers(context, ids, &[rows, width]);
        let mask = whole_numbers(context, mask, &[rows, width]);
        let target = ids.narrow(1, width - completion_len..width);
        let advantages = real_numbers(context, advantages, &[rows, 1]);
        let completion_mask = mask.narrow(1, width - completion_len..width);
        Self { ids, mask, target, advantages, completion_mask }
    }

    fn rows(&self) -> u64 {
        self.ids.size(0)
    }

    fn completion_len(&self) -> u64 {
        self.target.size(1)
    }
}

/// Tensors of the loss that live to the end of the step.
pub(super) struct Loss {
    pub loss: Tensor,
    _log_probs: Tensor,
    _old: Tensor,
    _ratio: Tensor,
    _per_token: Tensor,
}

/// How the loss is computed.
pub(super) struct Objective<'a> {
    pub parts: Parts<'a>,
    pub swarm: &'a SwarmSpec,
    pub autocast: Option<ScalarType>,
    pub has_position_table: bool,
    pub epsilon: f64,
    pub epsilon_high: f64,
}

impl Objective<'_> {
    /// GRPO's clipped objective.
    pub fn loss(&self, batch: &Batch) -> Loss {
        let context = self.parts.context;
        let _autocast = self.autocast.map(|dtype| or_stop(context.torch.autocast(context.device, Some(dtype))));
        context.take_rows_as(true, false);
        let log_probs = match self.swarm.log_probs {
            SwarmLogProbs::Full => self.full_log_probs(batch),
            SwarmLogProbs::Chunked { rows } => self.chunked_log_probs(batch, rows.max(1)),
            SwarmLogProbs::ChunkedHead { rows } => self.chunked_head_log_probs(batch, rows.max(1)),
        };
        let old = log_probs.detach();
        let ratio = (&log_probs - &old).exp();
        let per_token = {
            let unclipped = &ratio * &batch.advantages;
            let clipped = &ratio.clamp_to(Some(1.0 - self.epsilon), Some(1.0 + self.epsilon_high)) * &batch.advantages;
            unclipped.minimum_of(&clipped)
        }
        .neg();
        let total = (&per_token * &batch.completion_mask).sum();
        let loss = total.div_by(&batch.completion_mask.sum());
        Loss { loss, _log_probs: log_probs, _old: old, _ratio: ratio, _per_token: per_token }
    }

    fn forward<T>(&self, batch: &Batch, run: impl FnOnce(&ForwardCall<'_>) -> T) -> T {
        // Positions that are rows of a table begin at a row's first token, as they did when it was generated.
        let position_ids = self.has_position_table.then(|| positions_of(&batch.mask));
        run(&ForwardCall {
            attention_mask: Some(&batch.mask),
            position_ids: position_ids.as_ref(),
            logits_to_keep: self.swarm.logits_to_keep.then_some(batch.completion_len() + 1),
            ..ForwardCall::new(&batch.ids)
        })
    }

    /// Of positions that have one more than the completion, those that predict its tokens.
    fn predicting(tensor: &Tensor, completion_len: u64) -> Tensor {
        let tokens = tensor.size(1);
        tensor.slice(1, tokens - completion_len - 1..tokens - 1)
    }

    /// The logits that predict the completion's tokens, a part of those that the head computes.
    fn compute_logits(&self, batch: &Batch) -> Tensor {
        let output = self.forward(batch, |call| self.parts.model.forward(call));
        let logits = output.logits.unwrap_or_else(|| batch.ids.clone());
        Self::predicting(&logits, batch.completion_len())
    }

    fn full_log_probs(&self, batch: &Batch) -> Tensor {
        let logits = self.compute_logits(batch).contiguous();
        token_log_probs(logits, &batch.target.contiguous())
    }

    fn chunked_log_probs(&self, batch: &Batch, rows: u64) -> Tensor {
        let logits = self.compute_logits(batch);
        let chunks: Vec<Tensor> = chunks_of(batch.rows(), rows)
            .map(|rows| token_log_probs(logits.slice(0, rows.clone()), &batch.target.narrow(0, rows)))
            .collect();
        cat(&chunks.iter().collect::<Vec<_>>(), 0)
    }

    fn chunked_head_log_probs(&self, batch: &Batch, rows: u64) -> Tensor {
        let hidden_states = self.forward(batch, |call| self.parts.model.hidden_states(call));
        let head = self.parts.model.output_embeddings();
        let chunks: Vec<Tensor> = chunks_of(batch.rows(), rows)
            .map(|rows| {
                // Slicing several dimensions at once leaves out those that are taken whole.
                let is_part = rows.end - rows.start < hidden_states.size(0);
                let part = if is_part { hidden_states.slice(0, rows.clone()) } else { hidden_states.clone() };
                let part = Self::predicting(&part, batch.completion_len());
                head_log_probs(&head, &part, batch.target.narrow(0, rows))
            })
            .collect();
        cat(&chunks.iter().collect::<Vec<_>>(), 0)
    }
}

/// Rows of each chunk.
fn chunks_of(total: u64, rows: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..total.div_ceil(rows)).map(move |chunk| chunk * rows..(chunk * rows + rows).min(total))
}

/// The head and its log-probabilities, made again in backward.
fn head_log_probs(head: &Rc<Linear>, hidden_states: &Tensor, target: Tensor) -> Tensor {
    let head = Rc::clone(head);
    checkpoint(hidden_states, move |hidden_states| token_log_probs(head.forward(hidden_states), &target))
}

/// Log-probabilities of the target tokens from logits divided by the temperature, which is 1, in fp32; [rows, tokens].
fn token_log_probs(logits: Tensor, target: &Tensor) -> Tensor {
    let mut scaled = logits.div_scalar(1.0);
    drop(logits);
    scaled = scaled.float();
    let classes = scaled.size(-1);
    let per_token = {
        let flat = scaled.reshape(&[scaled.numel() / classes.max(1), classes]);
        flat.cross_entropy(&target.reshape(&[target.numel()]), Reduction::None)
    };
    per_token.view(target.sizes()).neg()
}
