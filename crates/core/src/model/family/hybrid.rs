//! What hybrids of attention and Mamba-2 share: Bamba's names for the state space, and attention.

use crate::building::{Builder, Module};
use crate::job::{FieldError, Fields};
use crate::model::nn::AttentionOutput;
use crate::tensor::Tensor;

use super::RunOptions;
use super::attention::{Projections, SelfAttention, attend};
use super::decoder::DecoderConfig;
use super::layer::LayerCall;
use super::mamba2_mixer::{MAX_CHUNK, MixerConfig, MixerNorm};

/// What a config says of state spaces of this width as Bamba names it.
pub(crate) fn read_mixer(fields: &Fields, decoder: &DecoderConfig, width: u64) -> Result<MixerConfig, FieldError> {
    let num_heads = fields.size("mamba_n_heads", 128)?;
    let named = fields.get("mamba_d_head").is_some_and(|value| !value.is_string());
    let otherwise = width / num_heads;
    let biased = fields.flag("mamba_proj_bias", false)?;
    Ok(MixerConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: width,
        num_heads,
        head_dim: if named { fields.size("mamba_d_head", otherwise)? } else { otherwise },
        n_groups: fields.size("mamba_n_groups", 1)?,
        state_size: fields.size("mamba_d_state", 256)?,
        conv_kernel: fields.size("mamba_d_conv", 4)?,
        chunk_size: fields.bounded("mamba_chunk_size", 256, MAX_CHUNK)?,
        conv_bias: fields.flag("mamba_conv_bias", true)?,
        proj_biases: [biased; 2],
        activation: decoder.activation,
        norm: MixerNorm::Whole,
        norm_eps: decoder.norm_eps,
        multipliers: None,
        adapts_out: true,
    })
}

/// `mamba_expand * hidden_size`
pub(crate) fn expanded_width(fields: &Fields, decoder: &DecoderConfig) -> Result<u64, FieldError> {
    Ok(fields.size("mamba_expand", 2)?.saturating_mul(decoder.hidden_size))
}

/// Turns queries and keys by cosines and sines.
type Turn = fn(&Tensor, &Tensor, &Tensor, &Tensor) -> (Tensor, Tensor);

/// How the attentions of hybrids differ.
#[derive(Clone, Copy)]
pub(crate) struct AttentionForm {
    pub turn: Turn,
    /// What keys are multiplied by.
    pub key_multiplier: Option<f64>,
}

/// `BambaAttention`, and `FalconH1Attention`
pub(crate) struct HybridAttention {
    module: Module,
    projections: Projections,
    form: AttentionForm,
    config: DecoderConfig,
    options: RunOptions,
}

impl HybridAttention {
    pub(crate) fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions, form: AttentionForm) -> Self {
        let projections = Projections::new(at, config, "o_proj");
        Self { module: at.module(), projections, form, config: config.clone(), options: options.clone() }
    }
}

impl SelfAttention for HybridAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let heads_first = |projected: Tensor| self.projections.split_heads(&projected).transpose(1, 2);
        let mut query_states = heads_first(q_proj.forward(hidden_states));
        let mut key_states = heads_first(k_proj.forward(hidden_states));
        if let Some(multiplier) = self.form.key_multiplier {
            key_states = key_states.mul_scalar(multiplier);
        }
        let mut value_states = heads_first(v_proj.forward(hidden_states));
        (query_states, key_states) = (self.form.turn)(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}
