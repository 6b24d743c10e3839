//! Mamba-2's state space (transformers/models/mamba2/modeling_mamba2.py, `Mamba2Mixer`), which hybrids have in some of their layers,
//! without the packages mamba-ssm and causal-conv1d.

use crate::building::{Builder, Init, Module};
use crate::job::{FieldError, keys};
use crate::model::nn::{Activation, AttentionOutput, Linear};
use crate::op::{ScanInputs, chunk_scan, update_state};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::bounds::bound_weights;
use super::causal_conv::{CausalConv, LayerState, apply_mask_to_padding_states};
use super::layer::LayerCall;

/// The most tokens of a chunk, whose products have the square of them: far above any that fits a GPU.
pub(crate) const MAX_CHUNK: u64 = 1 << 16;

/// What a config says of it.
#[derive(Clone, Copy)]
pub(crate) struct MixerConfig {
    pub hidden_size: u64,
    /// Width of all heads together.
    pub intermediate_size: u64,
    pub num_heads: u64,
    pub head_dim: u64,
    pub n_groups: u64,
    pub state_size: u64,
    pub conv_kernel: u64,
    pub chunk_size: u64,
    pub conv_bias: bool,
    /// Of the projections in and out.
    pub proj_biases: [bool; 2],
    pub activation: Activation,
    pub norm: MixerNorm,
    pub norm_eps: f64,
    pub multipliers: Option<MixerMultipliers>,
    /// Whether peft adapts the projection back.
    pub adapts_out: bool,
}

/// What hidden states are multiplied by, and each part of what they are projected to.
#[derive(Clone, Copy)]
pub(crate) struct MixerMultipliers {
    /// `ssm_in_multiplier`
    pub hidden: f64,
    /// `ssm_multipliers`
    pub projected: [f64; 5],
}

/// What stands between the scan and the projection back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MixerNorm {
    /// The gate, then a norm over all.
    Whole,
    /// The gate, then a norm over each group.
    EachGroup,
    /// Falcon-H1's norm over each group, before the gate or behind it.
    Groups { gates_first: bool },
    /// The gate alone.
    Gate,
}

impl MixerConfig {
    /// Refuses heads that do not make up its width; `key` is their number's.
    pub(crate) fn check(&self, key: &'static str, layers: u64) -> Result<(), FieldError> {
        if u128::from(self.num_heads) * u128::from(self.head_dim) != u128::from(self.intermediate_size) {
            let (heads, width) = (self.num_heads, self.intermediate_size);
            return Err(FieldError::new(key, format!("{heads} heads of {} are not {width} wide", self.head_dim)));
        }
        if !self.num_heads.is_multiple_of(self.n_groups) {
            return Err(FieldError::new(key, format!("is {}, of {} groups", self.num_heads, self.n_groups)));
        }
        bound_weights(&[(key, [self.n_groups, self.state_size], 1), (key, [self.intermediate_size, 1], 1)])?;
        bound_weights(&[(key, [self.conv_dim(), self.conv_kernel], layers)])?;
        let rows = [self.projection_size(), self.hidden_size];
        bound_weights(&[(key, rows, layers), (key, [self.intermediate_size, self.hidden_size], layers)])
    }

    fn group_states(&self) -> u64 {
        self.n_groups * self.state_size
    }

    fn conv_dim(&self) -> u64 {
        self.intermediate_size + 2 * self.group_states()
    }

    fn projection_size(&self) -> u64 {
        self.intermediate_size + self.conv_dim() + self.num_heads
    }

    /// `compute_mup_vector`
    fn mup_vector(&self, multipliers: &MixerMultipliers) -> Vec<f64> {
        let (inner, states) = (self.intermediate_size, self.group_states());
        let parts = [inner, inner, states, states, self.num_heads].into_iter().zip(multipliers.projected);
        parts.flat_map(|(width, number)| std::iter::repeat_n(number, width as usize)).collect()
    }
}

/// `MambaRMSNormGated`, and `FalconH1RMSNormGated`
struct RmsNormGated {
    module: Module,
    weight: Tensor,
    eps: f64,
    n_groups: u64,
}

impl RmsNormGated {
    fn new(at: &Builder, config: &MixerConfig) -> Self {
        let weight = at.parameter("weight", &[config.intermediate_size], Init::Ones);
        Self { module: at.module(), weight, eps: config.norm_eps, n_groups: config.n_groups }
    }

    fn forward(&self, input: &Tensor, gate: &Tensor, norm: MixerNorm) -> Tensor {
        let _module = self.module.enter();
        match norm {
            MixerNorm::Groups { gates_first } => self.forward_groups(input, gate, gates_first),
            MixerNorm::EachGroup => {
                let sizes = *input.sizes();
                let gated = multiply_gate(&input.float(), gate);
                let grouped = gated.view(&[sizes[0], sizes[1], self.n_groups, sizes[2] / self.n_groups]);
                drop(gated);
                let hidden_states = self.normalize(grouped).view(&sizes);
                &self.weight * &hidden_states.to(input.dtype())
            }
            MixerNorm::Whole | MixerNorm::Gate => {
                let hidden_states = self.normalize(multiply_gate(&input.float(), gate));
                &self.weight * &hidden_states.to(input.dtype())
            }
        }
    }

    fn forward_groups(&self, input: &Tensor, gate: &Tensor, gates_first: bool) -> Tensor {
        let sizes = *input.sizes();
        let grouped = [sizes[0], sizes[1], self.n_groups, sizes[2] / self.n_groups];
        let mut hidden_states = if gates_first { multiply_gate(input, gate) } else { input.clone() };
        hidden_states = hidden_states.float().view(&grouped);
        hidden_states = self.normalize(hidden_states);
        hidden_states = &self.weight.view(&grouped[2..]) * &hidden_states;
        hidden_states = hidden_states.view(&sizes);
        if sizes[1] == 1 {
            // Its rows then are taken for tokens.
            if sizes[0] > 1 {
                let problem = "rows of one token are not simulated with `mamba_rms_norm`";
                input.context().fail_unsimulated(&[keys::MICRO_BATCH_SIZE], || problem.to_owned());
            }
            hidden_states = hidden_states.squeeze(1);
        }
        if !gates_first {
            hidden_states = multiply_gate(&hidden_states, gate);
        }
        hidden_states.to(input.dtype())
    }

    /// `hidden_states * torch.rsqrt(variance + self.variance_epsilon)`
    fn normalize(&self, hidden_states: Tensor) -> Tensor {
        let variance = hidden_states.pow_scalar(2.0).mean_last();
        let inverse = variance.add_scalar(self.eps).rsqrt();
        &hidden_states * &inverse
    }
}

/// `hidden_states * F.silu(gate.to(torch.float32))`
fn multiply_gate(hidden_states: &Tensor, gate: &Tensor) -> Tensor {
    let activated = gate.float().silu();
    hidden_states * &activated
}

pub(crate) struct Mamba2Mixer {
    module: Module,
    dt_bias: Tensor,
    a_log: Tensor,
    d: Tensor,
    conv1d: CausalConv,
    in_proj: Linear,
    norm: Option<RmsNormGated>,
    out_proj: Linear,
    /// What is projected is multiplied by it.
    mup_vector: Option<Tensor>,
    config: MixerConfig,
}

impl Mamba2Mixer {
    pub(crate) fn new(at: &Builder, config: &MixerConfig) -> Self {
        // A module's own parameters are listed before those of modules in it, and moved to the device after them.
        let own = at.next_slot();
        let MixerConfig { hidden_size, intermediate_size, num_heads, .. } = *config;
        let [in_bias, out_bias] = config.proj_biases;
        let sizes = [config.conv_dim(), config.conv_kernel];
        let conv1d = CausalConv::new(&at.at("conv1d"), sizes, config.conv_bias, Some(config.activation));
        let in_proj = Linear::new(&at.at("in_proj"), hidden_size, config.projection_size(), in_bias);
        let norm = (config.norm != MixerNorm::Gate).then(|| RmsNormGated::new(&at.at("norm"), config));
        if !config.adapts_out {
            at.at("out_proj").refuse_adapter();
        }
        let out_proj = Linear::new(&at.at("out_proj"), intermediate_size, hidden_size, out_bias);
        let heads = [num_heads];
        Self {
            module: at.module(),
            dt_bias: at.parameter_listed_at(own, "dt_bias", &heads, Init::Ones),
            a_log: at.parameter_listed_at(own + 1, "A_log", &heads, Init::LogUniform),
            d: at.parameter_listed_at(own + 2, "D", &heads, Init::Ones),
            mup_vector: config.multipliers.as_ref().map(|multipliers| {
                at.buffer(&[1, 1, config.projection_size()], at.dtype(), || config.mup_vector(multipliers))
            }),
            conv1d,
            in_proj,
            norm,
            out_proj,
            config: *config,
        }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>, state: Option<LayerState>) -> Tensor {
        let _module = self.module.enter();
        let config = &self.config;
        let (rows, seq_len, dtype) = (hidden_states.size(0), hidden_states.size(1), hidden_states.dtype());
        let recurrent_state = state.and_then(|(cache, layer)| cache.recurrent_state(layer));
        let mut hidden_states = apply_mask_to_padding_states(hidden_states, mask);
        if let Some(multipliers) = &config.multipliers {
            hidden_states = hidden_states.mul_scalar(multipliers.hidden);
        }
        let mut projected_states = self.in_proj.forward(&hidden_states);
        if let Some(mup_vector) = &self.mup_vector {
            projected_states = &projected_states * mup_vector;
        }
        let a = self.decay();
        let [gate, mut hidden_states_b_c, dt] =
            projected_states.split_widths([config.intermediate_size, config.conv_dim(), config.num_heads]);
        hidden_states_b_c = self.conv1d.forward(hidden_states_b_c.transpose(1, 2), state);
        hidden_states_b_c = apply_mask_to_padding_states(&hidden_states_b_c.transpose(1, 2), mask);
        let (mut b, mut c);
        [hidden_states, b, c] =
            hidden_states_b_c.split_widths([config.intermediate_size, config.group_states(), config.group_states()]);
        let is_step = recurrent_state.is_some() && seq_len == 1;
        let split = |x: &Tensor, [first, second]: [u64; 2]| {
            if is_step { x.view(&[rows, first, second]) } else { x.view(&[rows, seq_len, first, second]) }
        };
        hidden_states = split(&hidden_states, [config.num_heads, config.head_dim]);
        [b, c] = [b, c].map(|x| split(&x, [config.n_groups, config.state_size]));
        let (d, dt_bias) = (&self.d, &self.dt_bias);
        let inputs = ScanInputs { hidden_states: &hidden_states, dt: &dt, a: &a, b: &b, c: &c, d, dt_bias };
        let scan_result = match (&recurrent_state, seq_len) {
            (Some(recurrent_state), 1) => {
                let gate = (config.norm == MixerNorm::Gate).then(|| split(&gate, [config.num_heads, config.head_dim]));
                [update_state(recurrent_state, &inputs, gate.as_ref()), recurrent_state.clone()]
            }
            _ => {
                let (output, final_state) = chunk_scan(&inputs, config.chunk_size, recurrent_state.as_ref());
                if let Some((cache, layer)) = state {
                    cache.update_recurrent_state(layer, &final_state);
                    [output, final_state]
                } else {
                    [output.clone(), output]
                }
            }
        };
        let mut scan_output = scan_result[0].reshape(&[rows, seq_len, config.intermediate_size]);
        scan_output = match &self.norm {
            Some(norm) => norm.forward(&scan_output, &gate, config.norm),
            None if is_step => scan_output,
            None => &scan_output * &gate.silu(),
        };
        self.out_proj.forward(&scan_output.to(dtype))
    }

    /// `-torch.exp(self.A_log.float())`
    fn decay(&self) -> Tensor {
        let grown = {
            let exponent = self.a_log.float();
            exponent.exp()
        };
        grown.neg()
    }
}

impl SelfAttention for Mamba2Mixer {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let state = call.cache.as_deref().map(|cache| (cache, layer));
        (self.forward(hidden_states, call.mask.as_ref(), state), None)
    }
}
