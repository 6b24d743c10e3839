//! `do_sample`, what `generate` does to scores before a token is drawn (generation/logits_process.py), and the drawing.

use crate::dtype::DType;
use crate::op::ReduceKind;
use crate::tensor::Tensor;

/// The settings of sampling that a `GenerationConfig` has; each builds its processor only where it does something.
#[derive(Clone, Copy)]
pub(super) struct Sampling {
    pub temperature: f64,
}

impl Sampling {
    /// Draws from the model's own distribution: `temperature=1.0, top_k=0, top_p=1.0`.
    pub(super) const PLAIN: Self = Self { temperature: 1.0 };

    /// The `LogitsProcessorList` that these settings build: each processor's result replaces the one before it.
    pub(super) fn process(self, logits: &Tensor) -> Tensor {
        let mut scores = logits.clone();
        if self.temperature != 1.0 {
            scores = scores.div_scalar(self.temperature);
        }
        scores
    }
}

/// `next_tokens`, with the `probs` they were drawn from.
pub(super) struct Choice {
    pub probs: Option<Tensor>,
    pub next_tokens: Tensor,
}

impl Choice {
    /// `softmax`, then `multinomial`.
    pub(super) fn drawn(scores: &Tensor, previous: Option<Self>) -> Self {
        let (previous_probs, previous_tokens) = match previous {
            Some(Self { probs, next_tokens }) => (probs, Some(next_tokens)),
            None => (None, None),
        };
        let probs = scores.softmax(None);
        drop(previous_probs);
        let next_tokens = probs.multinomial_one().squeeze(1);
        drop(previous_tokens);
        Self { probs: Some(probs), next_tokens }
    }

    /// The token of the highest score in each row, without a draw; the step before is let go after it.
    pub(super) fn likeliest(scores: &Tensor, previous: Option<Self>) -> Self {
        let next_tokens = scores.reduce_last("argmax.default", ReduceKind::ArgMax, DType::Int64);
        drop(previous);
        Self { probs: None, next_tokens }
    }
}
