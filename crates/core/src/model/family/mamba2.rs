//! Mamba-2 (transformers/models/mamba2/modeling_mamba2.py): blocks of nothing but a state space in chunks.

use crate::building::{BuildError, Builder};
use crate::job::{FieldError, Fields, ModelSpec};
use crate::model::nn::Activation;
use crate::tensor::Tensor;

use super::causal_conv::LayerState;
use super::mamba_causal_lm::{MambaConfig, MambaDefaults, MambaForCausalLm, Mixer};
use super::mamba2_mixer::{MAX_CHUNK, Mamba2Mixer, MixerConfig, MixerNorm};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["mamba2"], build };

/// What `Mamba2Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: MambaDefaults = MambaDefaults {
    vocab_size: 32768,
    hidden_size: 4096,
    num_hidden_layers: 64,
    tie_word_embeddings: false,
    makes_masks: true,
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = MambaConfig::read(&model.config, &DEFAULTS)?;
    let mixer = read_mixer(&model.config, &config)?;
    Ok(Box::new(MambaForCausalLm::new(at, &config, options, |at| Box::new(Mamba2Mixer::new(at, &mixer)))))
}

fn read_mixer(fields: &Fields, config: &MambaConfig) -> Result<MixerConfig, FieldError> {
    let activation = fields.text("hidden_act", "silu")?;
    let biased = fields.flag("use_bias", false)?;
    let mixer = MixerConfig {
        hidden_size: config.hidden_size,
        intermediate_size: fields.size("expand", 2)?.saturating_mul(config.hidden_size),
        num_heads: fields.size("num_heads", 128)?,
        head_dim: fields.size("head_dim", 64)?,
        n_groups: fields.size("n_groups", 8)?,
        state_size: fields.size("state_size", 128)?,
        conv_kernel: fields.size("conv_kernel", 4)?,
        chunk_size: fields.bounded("chunk_size", 256, MAX_CHUNK)?,
        conv_bias: fields.flag("use_conv_bias", true)?,
        proj_biases: [biased; 2],
        activation: Activation::from_name("hidden_act", activation)?,
        norm: MixerNorm::Whole,
        norm_eps: config.norm_eps,
        multipliers: None,
        adapts_out: false,
    };
    mixer.check("num_heads", config.num_hidden_layers)?;
    Ok(mixer)
}

impl Mixer for Mamba2Mixer {
    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>, state: Option<LayerState>) -> Tensor {
        self.forward(hidden_states, mask, state)
    }
}
