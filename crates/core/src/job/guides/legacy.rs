//! The estimate of a small-GPT trainer's own guide, for comparison: parameters times constants. It is kept as that
//! guide has it, faults included, so that its figures can be shown beside those of a simulated step.
//!
//! What it leaves out: logits and their gradient, attention scores, autocast's copies, the allocator and the context.
//! What it has wrong: activations and inputs are element counts taken for bytes, and under mixed precision it halves
//! weights, gradients and moments, which autocast leaves in fp32.

use crate::dtype::DType;
use crate::job::{FieldError, JobSpec};
use crate::model_type::ConfigWords;

/// Tensors of `batch x seq_len x embd` elements that the guide counts for a layer.
const ACTIVATIONS_PER_LAYER: u64 = 3;
/// The same for input and output.
const IO_TENSORS: u64 = 2;

/// The guide's figures; it prints them in units of 2^30 bytes and calls those GB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyEstimate {
    /// Parameters, without biases and without the final norm.
    pub parameters: u64,
    /// Bytes of the weights in the compute dtype.
    pub weights: u64,
    /// Elements of the activations, taken for bytes.
    pub activations: u64,
    /// Two moments in the compute dtype.
    pub optimizer_state: u64,
    /// Gradients in the compute dtype.
    pub gradients: u64,
    /// Elements of input and output, taken for bytes.
    pub io_tensors: u64,
}

impl LegacyEstimate {
    /// What that guide says of `job`; `None` for a model that is no GPT of its kind or Hugging Face's.
    ///
    /// # Errors
    /// When a size of the model cannot be used.
    pub fn of(job: &JobSpec) -> Result<Option<Self>, FieldError> {
        if job.model.facts().config != ConfigWords::Gpt2 {
            return Ok(None);
        }
        let fields = &job.model.config;
        // Defaults of GPT2Config, for what a config leaves out.
        let embd = fields.size("n_embd", 768)?;
        let layers = fields.layers("n_layer", 12)?;
        let embeddings = fields.size("vocab_size", 50_257)?.saturating_add(fields.size("n_positions", 1024)?);
        // Attention has 4 x embd^2 weights, the MLP 8 x embd^2; the two norms are counted without their biases.
        let layer = embd.saturating_mul(embd).saturating_mul(12).saturating_add(2 * embd);
        let parameters = embeddings.saturating_mul(embd).saturating_add(layers.saturating_mul(layer));
        let compute = job.precision.autocast_dtype().unwrap_or_else(|| job.precision.weight_dtype());
        let weights = parameters.saturating_mul(if compute == DType::Float32 { 4 } else { 2 });
        let hidden = job.micro_batch_size.saturating_mul(job.seq_len).saturating_mul(embd);
        Ok(Some(Self {
            parameters,
            weights,
            activations: hidden.saturating_mul(layers * ACTIVATIONS_PER_LAYER),
            optimizer_state: weights.saturating_mul(2),
            gradients: weights,
            io_tensors: hidden.saturating_mul(IO_TENSORS),
        }))
    }

    /// All of it.
    pub const fn total(&self) -> u64 {
        self.weights
            .saturating_add(self.activations)
            .saturating_add(self.optimizer_state)
            .saturating_add(self.gradients)
            .saturating_add(self.io_tensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobSource;
    use crate::units::Bytes;

    fn legacy(file: &str) -> Option<LegacyEstimate> {
        LegacyEstimate::of(&JobSource::from_file("a.toml", file).resolve(&[]).unwrap().job).unwrap()
    }

    fn figures(file: &str) -> (String, String) {
        let estimate = legacy(file).unwrap();
        let gib = Bytes(estimate.total()).gib();
        (format!("{:.2}M", estimate.parameters as f64 / 1e6), format!("{gib:.2}"))
    }

    #[test]
    fn reproduces_the_guides_examples() {
        let cases = [
            ("model_embd = 384\nbatch_size = 24", ("30.12M", "0.54")),
            ("model_embd = 384\nbatch_size = 24\nuse_amp = true", ("30.12M", "0.31")),
            ("model_embd = 768\nmodel_layer = 12\nbatch_size = 8\nuse_amp = true", ("123.94M", "1.03")),
            // The guide prints 442.37M and 3.67 here; its own formula does not.
            (
                "model_embd = 1024\nmodel_layer = 24\nmodel_head = 16\nbatch_size = 4\nuse_amp = true",
                ("354.03M", "2.78"),
            ),
        ];
        for (file, (parameters, gib)) in cases {
            assert_eq!(figures(file), (parameters.to_owned(), gib.to_owned()), "{file}");
        }
    }

    #[test]
    fn reproduces_the_guides_breakdown() {
        let estimate = legacy("model_embd = 384\nbatch_size = 24\nuse_amp = true").unwrap();
        let parts =
            [estimate.weights, estimate.activations, estimate.optimizer_state, estimate.gradients, estimate.io_tensors];
        assert_eq!(parts.map(|bytes| format!("{:.2}", Bytes(bytes).gib())), ["0.06", "0.08", "0.11", "0.06", "0.01"]);
        assert_eq!(parts.iter().sum::<u64>(), estimate.total());
    }

    #[test]
    fn has_nothing_to_say_of_other_models() {
        assert_eq!(legacy("model = \"Qwen/Qwen2.5-0.5B\""), None);
    }
}
