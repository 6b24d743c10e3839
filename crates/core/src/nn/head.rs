//! The language-model head and its loss (transformers/loss/loss_utils.py).

use crate::dtype::DType;
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

use super::builder::Builder;
use super::layers::{Embedding, Linear};

/// `lm_head`, tied to the embedding or with a weight of its own.
pub(crate) struct LmHead {
    linear: Linear,
}

impl LmHead {
    pub(crate) fn new(at: &Builder, width: u64, vocab_size: u64, tied: Option<&Embedding>) -> Self {
        let linear = match tied {
            Some(embedding) => Linear::tied(at, &embedding.weight, None),
            None => Linear::new(at, width, vocab_size, false),
        };
        Self { linear }
    }

    /// Logits of the last `logits_to_keep` positions, of all when `None`.
    pub(crate) fn forward(&self, hidden_states: &Tensor, logits_to_keep: Option<u64>) -> Tensor {
        match logits_to_keep.filter(|&keep| keep < hidden_states.size(1)) {
            Some(keep) => self.linear.forward(&hidden_states.slice(1, keep)),
            None => self.linear.forward(hidden_states),
        }
    }
}

/// `ForCausalLMLoss`: fp32 logits, labels shifted by padding, mean cross-entropy.
pub(crate) fn causal_lm_loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let context = logits.context();
    context.phase(PhaseKind::Loss);
    let loss = {
        let logits = logits.to(DType::Float32);
        let padded = labels.pad_labels();
        let shift_labels = padded.narrow(1, labels.size(1)).contiguous();
        let rows = shift_labels.numel();
        let logits = logits.view(&[rows, logits.size(-1)]);
        let shift_labels = shift_labels.view(&[rows]);
        logits.cross_entropy(&shift_labels)
    };
    context.phase(PhaseKind::ForwardTail);
    loss
}

/// `CrossEntropyLoss` over all positions, in the scores' dtype.
pub(crate) fn masked_lm_loss(prediction_scores: &Tensor, labels: &Tensor) -> Tensor {
    let context = prediction_scores.context();
    context.phase(PhaseKind::Loss);
    let rows = labels.numel();
    let loss = prediction_scores.view(&[rows, prediction_scores.size(-1)]).cross_entropy(&labels.view(&[rows]));
    context.phase(PhaseKind::ForwardTail);
    loss
}
