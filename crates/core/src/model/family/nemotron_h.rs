//! Nemotron-H (transformers/models/nemotron_h/modeling_nemotron_h.py): blocks of a norm and one mixer each, which is a state space,
//! attention without positions, or an MLP without gates.

use serde_json::Value;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{Activation, AttentionOutput, LayerType, RmsNorm};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_LINEAR};
use super::layer::{DecoderLayer, FeedForward, LayerCall};
use super::llama::{DecoderAttention, DecoderForCausalLm};
use super::mamba2_mixer::{MAX_CHUNK, Mamba2Mixer, MixerConfig, MixerNorm};
use super::nemotron::NemotronMlp;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["nemotron_h"], build };

/// What `NemotronHConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 131_072,
    intermediate_size: 21504,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    activation_key: "mlp_hidden_act",
    activation: "relu2",
    reads_attention_bias: false,
    file: ModelingFile::Later,
    positions: 4096,
    norm_key: "layer_norm_epsilon",
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

const BLOCKS: &str = "layers_block_type";

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    // Sizes that are impossible are named before blocks.
    DecoderConfig::read(fields, &DEFAULTS)?;
    let blocks = read_blocks(fields)?;
    let decoder = read_decoder(fields, &blocks)?;
    let mixer = read_mixer(fields, &decoder)?;
    let new_block = |at: &Builder, layer: usize, decoder: &DecoderConfig| -> Box<dyn DecoderLayer> {
        let norm = RmsNorm::new(&at.at("norm"), decoder.hidden_size, decoder.norm_eps);
        let mixer_at = at.at("mixer");
        let mixer: Box<dyn SelfAttention> = match blocks.get(layer) {
            Some(Block::Mlp) => Box::new(Mlp(NemotronMlp::new(&mixer_at, decoder))),
            Some(Block::Attention) => Box::new(DecoderAttention::new(&mixer_at, decoder, options)),
            Some(Block::Mamba) | None => Box::new(Mamba2Mixer::new(&mixer_at, &mixer)),
        };
        Box::new(NemotronHBlock { module: at.module(), layer, norm, mixer, dtype: at.dtype() })
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_block)))
}

/// What a block has for its mixer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Mamba,
    Attention,
    Mlp,
}

impl Block {
    fn parse(name: &str) -> Result<Self, FieldError> {
        match name {
            "linear_attention" | "mamba" | "M" => Ok(Self::Mamba),
            "full_attention" | "attention" | "*" => Ok(Self::Attention),
            "mlp" | "-" => Ok(Self::Mlp),
            "moe" | "E" => {
                Err(FieldError::unsimulated(BLOCKS, "blocks with experts are not simulated: theirs have no gates"))
            }
            other => {
                Err(FieldError::new(BLOCKS, format!("`{other}` is not linear_attention, full_attention, mlp or moe")))
            }
        }
    }
}

/// `layers_block_type`, or the letters of `hybrid_override_pattern`.
fn read_blocks(fields: &Fields) -> Result<Vec<Block>, FieldError> {
    match (fields.get("hybrid_override_pattern").and_then(Value::as_str), fields.texts(BLOCKS)?) {
        (_, Some(names)) => names.into_iter().map(Block::parse).collect(),
        (Some(pattern), None) => pattern.chars().map(|letter| Block::parse(letter.encode_utf8(&mut [0; 4]))).collect(),
        (None, None) => Block::parse("moe").map(|block| vec![block]),
    }
}

fn read_decoder(fields: &Fields, blocks: &[Block]) -> Result<DecoderConfig, FieldError> {
    let mut fields = fields.clone();
    fields.0.insert("num_hidden_layers".to_owned(), blocks.len().into());
    fields.0.insert("pad_token_id".to_owned(), Value::Null);
    let mut decoder = DecoderConfig::read(&fields, &DEFAULTS)?;
    decoder.mask_types = FULL_AND_LINEAR;
    let layer_type = |block: &Block| match block {
        Block::Mamba => LayerType::LinearAttention,
        Block::Attention | Block::Mlp => LayerType::FullAttention,
    };
    decoder.layer_types = blocks.iter().map(layer_type).collect();
    decoder.rotary_dim = 0;
    decoder.turned_layers = Some(vec![false; blocks.len()].into());
    decoder.embeddings = "embeddings";
    decoder.last_norm = ("norm_f", false);
    decoder.float_logits = true;
    Ok(decoder)
}

fn read_mixer(fields: &Fields, decoder: &DecoderConfig) -> Result<MixerConfig, FieldError> {
    // Configs of its first models have Bamba's names.
    let either = |own: &'static str, older: &'static str| if fields.get(older).is_some() { older } else { own };
    let (num_heads, head_dim) = (fields.size("mamba_num_heads", 128)?, fields.size("mamba_head_dim", 64)?);
    let activation = fields.text("mamba_hidden_act", "silu")?;
    let biased = fields.flag("use_bias", false)?;
    let mixer = MixerConfig {
        hidden_size: decoder.hidden_size,
        intermediate_size: num_heads.saturating_mul(head_dim),
        num_heads,
        head_dim,
        n_groups: fields.size(either("n_groups", "mamba_n_groups"), 8)?,
        state_size: fields.size("ssm_state_size", 128)?,
        conv_kernel: fields.size(either("conv_kernel", "mamba_d_conv"), 4)?,
        chunk_size: fields.bounded(either("chunk_size", "mamba_chunk_size"), 128, MAX_CHUNK)?,
        conv_bias: fields.flag(either("use_conv_bias", "mamba_conv_bias"), true)?,
        proj_biases: [biased; 2],
        activation: Activation::from_name("mamba_hidden_act", activation)?,
        norm: MixerNorm::EachGroup,
        norm_eps: decoder.norm_eps,
        multipliers: None,
        adapts_out: false,
    };
    mixer.check("mamba_num_heads", decoder.num_hidden_layers)?;
    Ok(mixer)
}

/// `NemotronHMLP` in the place of a mixer.
struct Mlp(NemotronMlp);

impl SelfAttention for Mlp {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, _layer: usize) -> AttentionOutput {
        (FeedForward::forward(&self.0, hidden_states, call), None)
    }
}

struct NemotronHBlock {
    module: Module,
    layer: usize,
    norm: RmsNorm,
    mixer: Box<dyn SelfAttention>,
    /// The dtype of the norm's weight.
    dtype: DType,
}

impl DecoderLayer for NemotronHBlock {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.norm.forward(&residual.to(self.dtype));
        hidden_states = self.mixer.forward(&hidden_states, call, self.layer).0;
        residual + &hidden_states
    }
}
