//! Mamba (transformers/models/mamba/modeling_mamba.py) and Falcon Mamba: blocks of nothing but a state space, a token at a time.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, Mode, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, keys};
use crate::model::nn::{Activation, AttentionOutput, Linear, RmsNorm};
use crate::op::{SelectiveInputs, selective_scan, update_selective_state};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::bounds::{MAX_ELEMENTS, bound_weights};
use super::causal_conv::{CausalConv, LayerState, apply_mask_to_padding_states};
use super::layer::LayerCall;
use super::mamba_causal_lm::{MambaConfig, MambaDefaults, MambaForCausalLm, Mixer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["mamba", "falcon_mamba"], build };

/// What `MambaConfig` and `FalconMambaConfig` have where a config says nothing (transformers 5.17).
const DEFAULTS: MambaDefaults = MambaDefaults {
    vocab_size: 50280,
    hidden_size: 768,
    num_hidden_layers: 32,
    tie_word_embeddings: true,
    makes_masks: false,
};

/// The most tokens that all layers together go through one after the other, as 1,024 of the 2.8B model: each is some twenty operators and
/// their gradients, and so many take about ten seconds and 650 MB.
const MAX_STEPS: u64 = 1 << 16;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = MambaConfig::read(&model.config, &DEFAULTS)?;
    let mixer = MixerConfig::read(&model.config, &config, model.model_type == FAMILY.model_types[1])?;
    Ok(Box::new(MambaForCausalLm::new(at, &config, options, |at| Box::new(MambaMixer::new(at, &mixer)))))
}

#[derive(Clone, Copy)]
pub(crate) struct MixerConfig {
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub state_size: u64,
    pub conv_kernel: u64,
    pub time_step_rank: u64,
    pub conv_bias: bool,
    pub bias: bool,
    pub activation: Activation,
    pub norms: MixerNorms,
    pub layers: u64,
}

/// Norms of steps and of what reads and writes states, with their epsilon.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum MixerNorms {
    None,
    /// Without weights, as Falcon Mamba has them.
    Weightless(f64),
    /// With weights, as Jamba has them.
    Learned(f64),
}

/// Those of a mixer, of steps, `b` and `c`.
enum Norms {
    None,
    /// Their weights are never read.
    Weightless(f64, [(Module, Tensor); 3]),
    Learned([RmsNorm; 3]),
}

impl MixerConfig {
    fn read(fields: &Fields, config: &MambaConfig, has_norms: bool) -> Result<Self, FieldError> {
        if fields.flag("use_mambapy", false)? || fields.flag("use_falcon_mambapy", false)? {
            return Err(FieldError::unsimulated("use_mambapy", "mambapy's scan is not simulated"));
        }
        let activation = fields.text("hidden_act", "silu")?;
        let rank = "time_step_rank";
        let rank_is_auto = fields.get(rank).is_none_or(serde_json::Value::is_string);
        let mixer = Self {
            hidden_size: config.hidden_size,
            intermediate_size: match fields.optional_size("intermediate_size")? {
                Some(given) => given,
                None => fields.size("expand", 2)?.saturating_mul(config.hidden_size),
            },
            state_size: fields.size("state_size", 16)?,
            conv_kernel: fields.size("conv_kernel", 4)?,
            time_step_rank: if rank_is_auto { config.hidden_size.div_ceil(16) } else { fields.size(rank, 1)? },
            conv_bias: fields.flag("use_conv_bias", true)?,
            bias: fields.flag("use_bias", false)?,
            activation: Activation::from_name("hidden_act", activation)?,
            norms: if has_norms {
                MixerNorms::Weightless(fields.number("mixer_rms_eps", 1e-6)?)
            } else {
                MixerNorms::None
            },
            layers: config.num_hidden_layers,
        };
        mixer.check()?;
        Ok(mixer)
    }

    pub(crate) fn check(&self) -> Result<(), FieldError> {
        let (inner, layers) = (self.intermediate_size, self.layers);
        bound_weights(&[("hidden_size", [inner, 4 * self.hidden_size], layers)])?;
        bound_weights(&[("state_size", [inner, self.state_size], 3 * layers)])?;
        bound_weights(&[("conv_kernel", [inner, self.conv_kernel], layers)])?;
        bound_weights(&[("time_step_rank", [inner, self.time_step_rank], 2 * layers)])
    }
}

pub(crate) struct MambaMixer {
    module: Module,
    a_log: Tensor,
    d: Tensor,
    conv1d: CausalConv,
    in_proj: Linear,
    x_proj: Linear,
    /// Its weight and bias are read: it is never called, nor is an adapter of it.
    dt_proj: Linear,
    dt_bias: Tensor,
    out_proj: Linear,
    norms: Norms,
    mode: Rc<Mode>,
    config: MixerConfig,
}

impl Norms {
    fn new(at: &Builder, config: &MixerConfig) -> Self {
        let names = ["dt_layernorm", "b_layernorm", "c_layernorm"];
        let state_size = config.state_size;
        match config.norms {
            MixerNorms::None => Self::None,
            MixerNorms::Weightless(eps) => {
                let widths = [config.intermediate_size, state_size, state_size];
                let norm = |which: usize| {
                    let (at, width) = (at.at(names[which]), widths[which]);
                    let weight = at.buffer(&[width], at.dtype(), || vec![1.0; width as usize]);
                    (at.module(), weight)
                };
                Self::Weightless(eps, [0, 1, 2].map(norm))
            }
            MixerNorms::Learned(eps) => {
                let widths = [config.time_step_rank, state_size, state_size];
                Self::Learned([0, 1, 2].map(|which| RmsNorm::new(&at.at(names[which]), widths[which], eps)))
            }
        }
    }
}

impl MambaMixer {
    pub(crate) fn new(at: &Builder, config: &MixerConfig) -> Self {
        // A module's own parameters are listed before those of modules in it, and moved to the device after them.
        let own = at.next_slot();
        let MixerConfig { hidden_size, intermediate_size, state_size, time_step_rank, .. } = *config;
        let sizes = [intermediate_size, config.conv_kernel];
        let conv1d = CausalConv::new(&at.at("conv1d"), sizes, config.conv_bias, Some(config.activation));
        let in_proj = Linear::new(&at.at("in_proj"), hidden_size, 2 * intermediate_size, config.bias);
        let x_proj = Linear::new(&at.at("x_proj"), intermediate_size, time_step_rank + 2 * state_size, false);
        let dt_at = at.at("dt_proj");
        let dt_proj = Linear::new(&dt_at, time_step_rank, intermediate_size, false);
        let dt_bias = dt_at.parameter("bias", &[intermediate_size], Init::Ones);
        // peft refuses it by the model type, of which Jamba's is none.
        if !matches!(config.norms, MixerNorms::Learned(_)) {
            at.at("out_proj").refuse_adapter();
        }
        let out_proj = Linear::new(&at.at("out_proj"), intermediate_size, hidden_size, config.bias);
        let norms = Norms::new(at, config);
        Self {
            module: at.module(),
            a_log: at.parameter_listed_at(own, "A_log", &[intermediate_size, state_size], Init::LogUniform),
            d: at.parameter_listed_at(own + 1, "D", &[intermediate_size], Init::Ones),
            conv1d,
            in_proj,
            x_proj,
            dt_proj,
            dt_bias,
            out_proj,
            norms,
            mode: at.mode(),
            config: *config,
        }
    }

    /// What a state keeps of itself in a step, as an exponent in fp32: [channels, states] (`-torch.exp(self.A_log.float())`).
    fn decay(&self) -> Tensor {
        let grown = {
            let exponent = self.a_log.float();
            exponent.exp()
        };
        grown.neg()
    }

    /// The norm of what is selected: Falcon Mamba's in fp32 and without a weight (`FalconMambaWeightlessRMSNorm`).
    fn normalize(&self, x: Tensor, which: usize) -> Tensor {
        let (eps, norms) = match &self.norms {
            Norms::None => return x,
            Norms::Learned(norms) => return norms[which].forward(&x),
            Norms::Weightless(eps, norms) => (*eps, norms),
        };
        let _module = norms[which].0.enter();
        let normed = {
            let x = x.float();
            let sum = {
                let variance = x.pow_scalar(2.0).mean_last();
                variance.add_scalar(eps)
            };
            let inverse = sum.rsqrt();
            drop(sum);
            &x * &inverse
        };
        normed.to(x.dtype())
    }

    /// What reads states and writes them, and how far each channel steps.
    fn select(&self, hidden_states: &Tensor) -> [Tensor; 3] {
        let MixerConfig { time_step_rank, state_size, .. } = self.config;
        let projected = self.x_proj.forward(hidden_states);
        let [mut time_step, mut b, mut c] = projected.split_widths([time_step_rank, state_size, state_size]);
        drop(projected);
        time_step = self.normalize(time_step, 0);
        b = self.normalize(b, 1);
        c = self.normalize(c, 2);
        [self.dt_proj.weight().matmul_stack(&time_step.transpose(1, 2)), b, c]
    }
}

impl MambaMixer {
    /// Refuses what is not simulated of these hidden states; whether it did.
    fn refuse_inputs(&self, hidden_states: &Tensor) -> bool {
        let (context, seq_len) = (hidden_states.context(), hidden_states.size(1));
        let is_long = seq_len.saturating_mul(self.config.layers) > MAX_STEPS;
        let states = u128::from(self.config.intermediate_size) * u128::from(self.config.state_size);
        let numbers = u128::from(hidden_states.size(0).saturating_mul(seq_len)) * states;
        let is_large = numbers > MAX_ELEMENTS;
        let is_quantized = matches!(self.dt_proj.weight().dtype(), DType::Uint8 | DType::Int8);
        if is_long {
            context.fail_unsimulated(&[keys::SEQ_LEN], || {
                let most = MAX_STEPS / self.config.layers.max(1);
                format!("`seq_len`: a loop over {seq_len} tokens in each layer; {most} of this model are simulated")
            });
        }
        if is_large {
            context.fail_unsimulated(&[keys::SEQ_LEN], || {
                format!("`seq_len`: the states of all tokens are {numbers} numbers; no GPU holds them")
            });
        }
        if is_quantized {
            context.fail_unsimulated(&[keys::QUANTIZATION], || {
                "`quantization`: the mixers of Mamba read weights that are then quantized".to_owned()
            });
        }
        is_long || is_large || is_quantized
    }

    /// `mamba_inner_fn(...)`, which takes its arguments in fp32 and without mamba-ssm does nothing.
    fn ask_for_kernel(&self) {
        let out_bias = self.out_proj.bias().map(Tensor::float);
        let others = [&self.d, &self.dt_bias].map(Tensor::float);
        drop((out_bias, others));
    }

    /// The scan's output, and the last state, which a variable holds where there is a cache.
    fn scan(&self, inputs: &SelectiveInputs, state: Option<LayerState>) -> [Tensor; 2] {
        let (output, final_state) = selective_scan(&SelectiveInputs { d: &self.d.float(), ..*inputs });
        let Some((cache, layer)) = state else { return [output.clone(), output] };
        cache.update_recurrent_state(layer, &final_state);
        [output, final_state]
    }

    /// The same of one token.
    fn step(&self, inputs: &SelectiveInputs, recurrent_state: &Tensor) -> Tensor {
        let [hidden_states, dt, gate] = [inputs.hidden_states, inputs.dt, inputs.gate].map(|x| x.select(2, 0));
        let [b, c] = [inputs.b, inputs.c].map(|x| x.select(1, 0));
        let inputs = SelectiveInputs { hidden_states: &hidden_states, dt: &dt, gate: &gate, b: &b, c: &c, ..*inputs };
        update_selective_state(recurrent_state, &inputs).unsqueeze(2)
    }
}

impl Mixer for MambaMixer {
    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>, state: Option<LayerState>) -> Tensor {
        let _module = self.module.enter();
        if self.refuse_inputs(hidden_states) {
            return hidden_states.clone();
        }
        let (seq_len, dtype) = (hidden_states.size(1), hidden_states.dtype());
        let recurrent_state = state.and_then(|(cache, layer)| cache.recurrent_state(layer));
        let hidden_states = apply_mask_to_padding_states(hidden_states, mask);
        let projected_states = self.in_proj.forward(&hidden_states).transpose(1, 2);
        let a = self.decay();
        if self.mode.is_training() && state.is_none() && !matches!(self.norms, Norms::Learned(_)) {
            self.ask_for_kernel();
        }
        let [mut hidden_states_b_c, gate] = projected_states.split(1);
        hidden_states_b_c = self.conv1d.forward(hidden_states_b_c, state);
        hidden_states_b_c = apply_mask_to_padding_states(&hidden_states_b_c.transpose(1, 2), mask);
        let [dt, b, c] = self.select(&hidden_states_b_c);
        let (dt_bias, transposed) = (self.dt_bias.float(), hidden_states_b_c.transpose(1, 2));
        let inputs = SelectiveInputs {
            hidden_states: &transposed,
            dt: &dt,
            a: &a,
            b: &b,
            c: &c,
            d: &self.d,
            gate: &gate,
            dt_bias: &dt_bias,
        };
        let scan_result = match &recurrent_state {
            Some(recurrent_state) if seq_len == 1 => {
                let scan_output = self.step(&inputs, recurrent_state);
                [scan_output.clone(), scan_output]
            }
            _ => self.scan(&inputs, state),
        };
        self.out_proj.forward(&scan_result[0].transpose(1, 2).to(dtype))
    }
}

impl SelfAttention for MambaMixer {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let state = call.cache.as_deref().map(|cache| (cache, layer));
        (Mixer::forward(self, hidden_states, call.mask.as_ref(), state), None)
    }
}
