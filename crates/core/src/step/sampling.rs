//! `do_sample` and what `generate` does to scores before a token is drawn (generation/logits_process.py).

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
