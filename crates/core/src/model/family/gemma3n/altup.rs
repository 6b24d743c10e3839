//! `Gemma3nTextAltUp`: a layer predicts all streams from all, computes one of them, and corrects the others by what came out.

use crate::building::{Builder, Init};
use crate::job::keys;
use crate::model::nn::Linear;
use crate::tensor::Tensor;

use super::super::RunOptions;
use super::super::decoder::DecoderConfig;
use super::super::gemma4::GemmaPowNorm;

/// The `altup_` fields of a config.
#[derive(Clone, Copy)]
pub(super) struct AltUpConfig {
    pub active_idx: u64,
    /// `None` where coefficients are not clamped in training.
    pub coef_clip: Option<f64>,
    pub correct_scale: bool,
    pub num_inputs: u64,
}

pub(super) struct AltUp {
    correct_output_scale: Tensor,
    correction_coefs: Linear,
    prediction_coefs: Linear,
    modality_router: Linear,
    router_norm: GemmaPowNorm,
    router_input_scale: Tensor,
    config: AltUpConfig,
    options: RunOptions,
}

impl AltUp {
    pub(super) fn new(at: &Builder, decoder: &DecoderConfig, config: AltUpConfig, options: &RunOptions) -> Self {
        let (streams, hidden) = (config.num_inputs, decoder.hidden_size);
        // Called by its methods alone, it is no module of the trace; its own parameter is listed first and moved last.
        let own = at.next_slot();
        let project = |name, inputs, outputs| Linear::new(&at.at(name), inputs, outputs, false);
        Self {
            correction_coefs: project("correction_coefs", streams, streams),
            prediction_coefs: project("prediction_coefs", streams, streams * streams),
            modality_router: project("modality_router", hidden, streams),
            router_norm: GemmaPowNorm::new(&at.at("router_norm"), hidden, decoder.norm_eps),
            correct_output_scale: at.parameter_listed_at(own, "correct_output_scale", &[hidden], Init::Zeros),
            router_input_scale: at.buffer(&[], at.default_dtype(), || vec![1.0 / hidden as f64]),
            config,
            options: options.clone(),
        }
    }

    /// The stream that a layer computes.
    pub(super) fn active(&self, streams: &Tensor) -> Tensor {
        streams.select(0, self.config.active_idx)
    }

    fn compute_router_modalities(&self, x: &Tensor) -> Tensor {
        let router_inputs = {
            let normed = self.router_norm.forward(x);
            &normed * &self.router_input_scale
        };
        let routed = self.modality_router.forward(&router_inputs);
        let squashed = {
            let routed = routed.float();
            routed.tanh()
        };
        squashed.to(x.dtype())
    }

    /// What coefficients are clamped to, where they are.
    fn clip(&self) -> Option<f64> {
        self.config.coef_clip.filter(|_| self.options.mode.is_training())
    }

    pub(super) fn predict(&self, hidden_states: &Tensor) -> Tensor {
        let modalities = self.compute_router_modalities(&self.active(hidden_states));
        if let Some(clip) = self.clip() {
            let weight = self.prediction_coefs.weight();
            if !weight.dtype().is_floating_point() {
                // "result type Float can't be cast to the desired output type unsigned char"
                hidden_states.context().fail_unsimulated(&[keys::QUANTIZATION], || {
                    "`quantization`: transformers 5.17 clamps `altup.prediction_coefs` in training, which PyTorch refuses of \
                     quantized weights"
                        .to_owned()
                });
            }
            weight.clamp_data(clip);
        }
        let streams = self.config.num_inputs;
        let [rows, tokens] = [modalities.size(0), modalities.size(1)];
        let all_coefs = {
            let coefs = self.prediction_coefs.forward(&modalities);
            coefs.reshape(&[rows, tokens, streams, streams]).permute([0, 1, 3, 2])
        };
        let mut predictions = hidden_states.permute([1, 2, 3, 0]).matmul(&all_coefs);
        predictions = predictions.permute_and_add([3, 0, 1, 2], hidden_states);
        predictions.contiguous().to(hidden_states.dtype())
    }

    pub(super) fn correct(&self, predictions: &Tensor, activated: &Tensor) -> Tensor {
        let modalities = self.compute_router_modalities(activated);
        let mut innovation = activated - &self.active(predictions);
        innovation = innovation.repeat_beside(self.config.num_inputs);
        let mut clipped = None;
        let mut all_coefs = {
            let coefs = match self.clip() {
                Some(clip) => {
                    let weight = clipped.insert(self.correction_coefs.weight().clamp_both(clip));
                    modalities.linear(weight, None)
                }
                None => self.correction_coefs.forward(&modalities),
            };
            coefs.add_scalar(1.0)
        };
        all_coefs = all_coefs.unsqueeze(3).permute([2, 0, 1, 3]);
        let mut corrected = &innovation * &all_coefs;
        corrected = corrected.add_in_place(predictions);
        corrected.contiguous().to(activated.dtype())
    }

    /// What it is called with where `altup_correct_scale` is set.
    pub(super) fn scale_corrected_output(&self, corrected: Tensor) -> Tensor {
        if !self.config.correct_scale {
            return corrected;
        }
        let scaled = {
            let cast = corrected.to(self.correct_output_scale.dtype());
            &cast * &self.correct_output_scale
        };
        scaled.to(corrected.dtype())
    }
}
