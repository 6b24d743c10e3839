//! LFM2 (transformers/models/lfm2/modeling_lfm2.py): Llama's decoder under other names, in most of whose layers a short convolution
//! between two gates stands in the attention's place.

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{AttentionOutput, LayerType, Linear};
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::bounds::bound_weights;
use super::causal_conv::{CausalConv, apply_mask_to_padding_states};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::{FeedForward, LayerCall};
use super::llama::{DecoderAttention, DecoderForCausalLm, LlamaDecoderLayer};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["lfm2"], build };

/// What `Lfm2Config` has where a config says nothing (transformers 5.17).
pub(crate) const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 65536,
    hidden_size: 2560,
    intermediate_size: 12288,
    num_key_value_heads: Some(8),
    tie_word_embeddings: true,
    reads_attention_bias: false,
    reads_mlp_bias: false,
    qk_norm: true,
    file: ModelingFile::Later,
    positions: 128_000,
    norm_key: "norm_eps",
    norm_eps: 1e-5,
    rope_theta: 1_000_000.0,
    pad_token_id: Some(0),
    ..DecoderDefaults::LLAMA
};

/// A layer of its relatives, which differ in what stands in the MLP's place.
pub(crate) type Lfm2DecoderLayer = LlamaDecoderLayer<Box<dyn FeedForward>, Box<dyn SelfAttention>>;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let fields = &model.config;
    let mut decoder = read_decoder(fields, &DEFAULTS)?;
    decoder.intermediate_size = inner_width(fields, &decoder)?;
    let conv = ConvConfig::read(fields, &decoder)?;
    let new_layer = |at: &Builder, layer: usize, decoder: &DecoderConfig| {
        conv.new_layer(at, layer, decoder, options, |at| Box::new(new_mlp(at, decoder)))
    };
    Ok(Box::new(DecoderForCausalLm::with_layers(at, decoder, options, new_layer)))
}

/// Which layers have attention: `layer_types`, or `full_attn_idxs`, or all.
pub(crate) fn read_decoder(fields: &Fields, defaults: &DecoderDefaults) -> Result<DecoderConfig, FieldError> {
    let tied = if fields.get("tie_embedding").is_some() { "tie_embedding" } else { "tie_word_embeddings" };
    let attends = |layer: u64| match fields.get("full_attn_idxs").and_then(|indices| indices.as_array()) {
        Some(indices) => indices.iter().any(|index| index.as_u64() == Some(layer)),
        None => true,
    };
    let otherwise = |layer| if attends(layer) { LayerType::FullAttention } else { LayerType::LinearAttention };
    let mut decoder = DecoderConfig::read(fields, defaults)?.with_linear_layers(fields, "conv", otherwise)?;
    decoder.tie_word_embeddings = fields.flag(tied, defaults.tie_word_embeddings)?;
    decoder.attention_dropout = 0.0;
    decoder.last_norm = ("embedding_norm", true);
    Ok(decoder)
}

/// How wide the MLP is of which the config names a size before it is adjusted.
fn inner_width(fields: &Fields, decoder: &DecoderConfig) -> Result<u64, FieldError> {
    let named = fields.optional_size("block_ff_dim")?.unwrap_or(decoder.intermediate_size);
    if !fields.flag("block_auto_adjust_ff_dim", true)? {
        return Ok(named);
    }
    let two_thirds = 2 * named / 3;
    let has_multiplier = fields.0.get("block_ffn_dim_multiplier") != Some(&serde_json::Value::Null);
    if !has_multiplier {
        return Ok(two_thirds);
    }
    let scaled = (fields.positive("block_ffn_dim_multiplier", 1.0)? * two_thirds as f64) as u64;
    let (hidden, step) = (decoder.hidden_size, fields.size("block_multiple_of", 256)?);
    let copies = 3 * decoder.num_hidden_layers;
    bound_weights(&[
        ("block_ffn_dim_multiplier", [scaled, hidden], copies),
        ("block_multiple_of", [step, hidden], copies),
    ])?;
    Ok(scaled.next_multiple_of(step))
}

/// `Lfm2MLP`
pub(crate) fn new_mlp(at: &Builder, decoder: &DecoderConfig) -> DecoderMlp {
    DecoderMlp::named(at, decoder, ["w1", "w3", "w2"])
}

/// What the config says of layers with a short convolution.
#[derive(Clone, Copy)]
pub(crate) struct ConvConfig {
    /// Tokens that a convolution reads (`conv_L_cache`).
    width: u64,
    bias: bool,
}

impl ConvConfig {
    pub(crate) fn read(fields: &Fields, decoder: &DecoderConfig) -> Result<Self, FieldError> {
        let width = fields.size("conv_L_cache", 3)?;
        let (hidden, layers) = (decoder.hidden_size, decoder.num_hidden_layers);
        bound_weights(&[("hidden_size", [4 * hidden, hidden], layers), ("conv_L_cache", [hidden, width], layers)])?;
        Ok(Self { width, bias: fields.flag("conv_bias", false)? })
    }

    pub(crate) fn new_layer(
        self,
        at: &Builder,
        layer: usize,
        decoder: &DecoderConfig,
        options: &RunOptions,
        new_mlp: impl FnOnce(&Builder) -> Box<dyn FeedForward>,
    ) -> Lfm2DecoderLayer {
        let convolves = decoder.layer_types.get(layer) == Some(&LayerType::LinearAttention);
        let new_mixer = |at: &Builder| -> Box<dyn SelfAttention> {
            if convolves {
                Box::new(ShortConv::new(at, decoder.hidden_size, self))
            } else {
                Box::new(DecoderAttention::named(at, decoder, ["out_proj", "q_layernorm", "k_layernorm"], options))
            }
        };
        let mixer = if convolves { "conv" } else { "self_attn" };
        let names = [mixer, "feed_forward", "operator_norm", "ffn_norm"];
        LlamaDecoderLayer::named(at, layer, decoder, names, (new_mixer, new_mlp))
    }
}

struct ShortConv {
    module: Module,
    conv: CausalConv,
    in_proj: Linear,
    out_proj: Linear,
}

impl ShortConv {
    fn new(at: &Builder, hidden: u64, config: ConvConfig) -> Self {
        Self {
            module: at.module(),
            conv: CausalConv::new(&at.at("conv"), [hidden, config.width], config.bias, None),
            in_proj: Linear::new(&at.at("in_proj"), hidden, 3 * hidden, config.bias),
            out_proj: Linear::new(&at.at("out_proj"), hidden, hidden, config.bias),
        }
    }
}

impl SelfAttention for ShortConv {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let mut hidden_states = apply_mask_to_padding_states(hidden_states, call.mask.as_ref());
        let bcx = self.in_proj.forward(&hidden_states).transpose(1, 2);
        let [b, c, x] = bcx.split(1);
        hidden_states = &b * &x;
        hidden_states = self.conv.forward(hidden_states, call.cache.as_deref().map(|cache| (cache, layer)));
        let mut y = &c * &hidden_states;
        y = y.transpose(1, 2).contiguous();
        (self.out_proj.forward(&y), None)
    }
}
