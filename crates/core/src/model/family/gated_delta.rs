//! Layers with the gated delta rule (transformers/models/qwen3_next/modeling_qwen3_next.py, `Qwen3NextGatedDeltaNet`), of Qwen3-Next and of
//! Qwen3.5, without the packages that have kernels for it.

use crate::building::{Builder, Init, Module};
use crate::job::{FieldError, Fields, keys};
use crate::model::nn::{Activation, AttentionOutput, Linear};
use crate::op::{cat, chunk_gated_delta_rule};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::bounds::{bound_weights, check_divides};
use super::causal_conv::{CausalConv, apply_mask_to_padding_states};
use super::decoder::DecoderConfig;
use super::layer::LayerCall;

/// How hidden states are projected for the gated delta rule.
#[derive(Clone, Copy)]
pub(crate) enum InProjections {
    /// `in_proj_qkvz` and `in_proj_ba`, by key heads.
    Joined,
    /// Qwen3.5's: queries, keys and values in one, and one each for the rest.
    Apart,
}

/// What the config says of layers with the gated delta rule.
#[derive(Clone, Copy)]
pub(crate) struct LinearConfig {
    conv_kernel_dim: u64,
    key_head_dim: u64,
    value_head_dim: u64,
    num_key_heads: u64,
    num_value_heads: u64,
    in_projections: InProjections,
}

impl LinearConfig {
    pub(crate) fn read(fields: &Fields, in_projections: InProjections) -> Result<Self, FieldError> {
        Ok(Self {
            conv_kernel_dim: fields.size("linear_conv_kernel_dim", 4)?,
            key_head_dim: fields.size("linear_key_head_dim", 128)?,
            value_head_dim: fields.size("linear_value_head_dim", 128)?,
            num_key_heads: fields.size("linear_num_key_heads", 16)?,
            num_value_heads: fields.size("linear_num_value_heads", 32)?,
            in_projections,
        })
    }

    pub(crate) fn check(&self, decoder: &DecoderConfig) -> Result<(), FieldError> {
        let (hidden, layers) = (decoder.hidden_size, decoder.num_hidden_layers);
        check_divides("linear_num_key_heads", self.num_key_heads, "linear_num_value_heads", self.num_value_heads)?;
        bound_weights(&[
            ("linear_key_head_dim", [self.num_key_heads, self.key_head_dim], 1),
            ("linear_value_head_dim", [self.num_value_heads, self.value_head_dim], 1),
        ])?;
        bound_weights(&[
            ("linear_num_key_heads", [self.key_dim(), hidden], 2 * layers),
            ("linear_num_value_heads", [self.value_dim(), hidden], 4 * layers),
            ("linear_conv_kernel_dim", [self.conv_dim(), self.conv_kernel_dim], layers),
        ])
    }

    fn key_dim(&self) -> u64 {
        self.num_key_heads * self.key_head_dim
    }

    fn value_dim(&self) -> u64 {
        self.num_value_heads * self.value_head_dim
    }

    fn conv_dim(&self) -> u64 {
        2 * self.key_dim() + self.value_dim()
    }

    /// Value heads that share a key head.
    fn groups(&self) -> u64 {
        self.num_value_heads / self.num_key_heads
    }
}

/// `Qwen3NextRMSNormGated`
struct RmsNormGated {
    module: Module,
    weight: Tensor,
    eps: f64,
}

impl RmsNormGated {
    fn forward(&self, input: &Tensor, gate: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = input.float();
        let variance = hidden_states.pow_scalar(2.0).mean_last();
        hidden_states = {
            let inverse = variance.add_scalar(self.eps).rsqrt();
            &hidden_states * &inverse
        };
        hidden_states = &self.weight * &hidden_states.to(input.dtype());
        hidden_states = {
            let activated = Activation::Silu.forward(&gate.float());
            &hidden_states * &activated
        };
        hidden_states.to(input.dtype())
    }
}

/// `Qwen3NextGatedDeltaNet`
pub(crate) struct GatedDeltaNet {
    module: Module,
    conv1d: CausalConv,
    dt_bias: Tensor,
    a_log: Tensor,
    norm: RmsNormGated,
    out_proj: Linear,
    in_projections: Projections,
    config: LinearConfig,
}

/// The linear layers of each of [`InProjections`].
enum Projections {
    Joined(Box<[Linear; 2]>),
    Apart(Box<[Linear; 4]>),
}

/// What enters the rule: [rows, channels, tokens] of queries, keys and values; a gate by value heads, and `b` and `a`.
struct Projected {
    mixed_qkv: Tensor,
    z: Tensor,
    b: Tensor,
    a: Tensor,
    /// Queries, keys and values apart, as long as Python's variables hold them.
    apart: Vec<Tensor>,
    /// What the projections returned, where variables hold it to the end.
    _projected: Option<[Tensor; 2]>,
}

impl GatedDeltaNet {
    pub(crate) fn new(at: &Builder, decoder: &DecoderConfig, config: LinearConfig) -> Self {
        let hidden = decoder.hidden_size;
        let project = |name: &str, width| Linear::new(&at.at(name), hidden, width, false);
        // A module's own parameters are listed before those of modules in it, and moved to the device after them.
        let own = at.next_slot();
        let sizes = [config.conv_dim(), config.conv_kernel_dim];
        let conv1d = CausalConv::new(&at.at("conv1d"), sizes, false, Some(decoder.activation));
        let joined = match config.in_projections {
            InProjections::Joined => Some([
                project("in_proj_qkvz", config.conv_dim() + config.value_dim()),
                project("in_proj_ba", 2 * config.num_value_heads),
            ]),
            InProjections::Apart => None,
        };
        let norm_at = at.at("norm");
        let norm = RmsNormGated {
            module: norm_at.module(),
            weight: norm_at.parameter("weight", &[config.value_head_dim], Init::Ones),
            eps: decoder.norm_eps,
        };
        let out_proj = Linear::new(&at.at("out_proj"), config.value_dim(), hidden, false);
        let in_projections = match joined {
            Some(joined) => Projections::Joined(Box::new(joined)),
            None => Projections::Apart(Box::new([
                project("in_proj_qkv", config.conv_dim()),
                project("in_proj_z", config.value_dim()),
                project("in_proj_b", config.num_value_heads),
                project("in_proj_a", config.num_value_heads),
            ])),
        };
        let heads = [config.num_value_heads];
        Self {
            module: at.module(),
            conv1d,
            dt_bias: at.parameter_listed_at(own, "dt_bias", &heads, Init::Ones),
            a_log: at.parameter_listed_at(own + 1, "A_log", &heads, Init::LogUniform),
            norm,
            out_proj,
            in_projections,
            config,
        }
    }

    fn project(&self, hidden_states: &Tensor) -> Projected {
        match &self.in_projections {
            Projections::Joined(projections) => self.fix_query_key_value_ordering(
                projections.each_ref().map(|projection| projection.forward(hidden_states)),
            ),
            Projections::Apart(projections) => {
                let [qkv, z, b, a] = projections.each_ref().map(|projection| projection.forward(hidden_states));
                let LinearConfig { num_value_heads, value_head_dim, .. } = self.config;
                Projected {
                    mixed_qkv: qkv.transpose(1, 2),
                    z: z.reshape(&[z.size(0), z.size(1), num_value_heads, value_head_dim]),
                    b,
                    a,
                    apart: Vec::new(),
                    _projected: None,
                }
            }
        }
    }

    /// What is projected by key heads, apart and by value heads.
    fn fix_query_key_value_ordering(&self, projected: [Tensor; 2]) -> Projected {
        let LinearConfig { num_key_heads, num_value_heads, key_head_dim, value_head_dim, .. } = self.config;
        let (rows, tokens, groups) = (projected[0].size(0), projected[0].size(1), self.config.groups());
        let by_key_heads = |x: &Tensor| x.view(&[rows, tokens, num_key_heads, x.size(-1) / num_key_heads]);
        let values = groups * value_head_dim;
        let [query, key, value, z] =
            by_key_heads(&projected[0]).split_widths([key_head_dim, key_head_dim, values, values]);
        let [b, a] = by_key_heads(&projected[1]).split_widths([groups, groups]);
        let by_value_heads = |x: &Tensor| x.reshape(&[rows, tokens, num_value_heads, value_head_dim]);
        let (value, z) = (by_value_heads(&value), by_value_heads(&z));
        let [b, a] = [b, a].map(|x| x.reshape(&[rows, tokens, num_value_heads]));
        let flat = |x: &Tensor| x.reshape(&[rows, tokens, x.size(2) * x.size(3)]);
        let [query, key, value] = [&query, &key, &value].map(flat);
        let mixed_qkv = cat(&[&query, &key, &value], 2).transpose(1, 2);
        Projected { mixed_qkv, z, b, a, apart: vec![query, key, value], _projected: Some(projected) }
    }
}

/// `x.repeat_interleave(groups, dim=2)`
fn repeat_heads(x: &Tensor, groups: u64) -> Tensor {
    let s = x.sizes();
    let repeated = x.unsqueeze(3).expand(&[s[0], s[1], s[2], groups, s[3]]).clone_contiguous();
    repeated.view(&[s[0], s[1], s[2] * groups, s[3]])
}

impl SelfAttention for GatedDeltaNet {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, _layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        if call.cache.is_some() {
            hidden_states.context().fail_unsimulated(&[keys::TASK], || {
                "the cache of layers with linear attention is not simulated: nothing is generated with them".to_owned()
            });
        }
        let config = &self.config;
        let hidden_states = apply_mask_to_padding_states(hidden_states, call.mask.as_ref());
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let Projected { mut mixed_qkv, mut z, b, a, mut apart, _projected } = self.project(&hidden_states);
        mixed_qkv = self.conv1d.forward(mixed_qkv, None).transpose(1, 2);
        let [mut query, mut key, mut value] =
            mixed_qkv.split_widths([config.key_dim(), config.key_dim(), config.value_dim()]);
        apart.clear();
        let by_heads = |x: &Tensor, width: u64| x.reshape(&[rows, tokens, x.size(-1) / width, width]);
        query = by_heads(&query, config.key_head_dim);
        key = by_heads(&key, config.key_head_dim);
        value = by_heads(&value, config.value_head_dim);
        let beta = b.sigmoid();
        let g = {
            let decay = {
                let grown = {
                    let exponent = self.a_log.float();
                    exponent.exp()
                };
                grown.neg()
            };
            let steps = {
                let shifted = {
                    let steps = a.float();
                    &steps + &self.dt_bias
                };
                shifted.softplus()
            };
            &decay * &steps
        };
        if config.groups() > 1 {
            query = repeat_heads(&query, config.groups());
            key = repeat_heads(&key, config.groups());
        }
        let mut core_attn_out = chunk_gated_delta_rule([&query, &key, &value], &g, &beta);
        let by_value_heads = |x: &Tensor| x.reshape(&[x.numel() / config.value_head_dim, config.value_head_dim]);
        core_attn_out = by_value_heads(&core_attn_out);
        z = by_value_heads(&z);
        core_attn_out = self.norm.forward(&core_attn_out, &z);
        core_attn_out = core_attn_out.reshape(&[rows, tokens, config.value_dim()]);
        (self.out_proj.forward(&core_attn_out), None)
    }
}
