//! StableLM (transformers/models/stablelm/modeling_stablelm.py): Llama with layer norms, rotary embeddings on a part of each head,
//! dropout behind the MLP, and in some configs both branches from one norm.

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{AttentionOutput, LayerNorm, apply_rotary_pos_emb, split_rotary};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::{DecoderLayer, LayerCall};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["stablelm"], build };

/// What `StableLmConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 50304,
    hidden_size: 2560,
    intermediate_size: 6912,
    num_key_value_heads: Some(32),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 4096,
    norm_key: "layer_norm_eps",
    norm_eps: 1e-5,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config)?;
    let new_layer = |at: &Builder, layer, _: &DecoderConfig| StableLmDecoderLayer::new(at, layer, &config, options);
    Ok(Box::new(DecoderForCausalLm::<_, LayerNorm>::with_norms(at, config.decoder.clone(), options, new_layer)))
}

/// What StableLM's config has beyond a decoder's.
struct Config {
    decoder: DecoderConfig,
    use_parallel_residual: bool,
    hidden_dropout: f64,
}

impl Config {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        if fields.flag("qk_layernorm", false)? {
            return Err(FieldError::unsimulated("qk_layernorm", "norms of their own for each head are not simulated"));
        }
        let mut decoder =
            DecoderConfig::read(fields, &DEFAULTS)?.turning_a_part(fields, "partial_rotary_factor", 0.25)?;
        decoder.qkv_bias = fields.flag("use_qkv_bias", false)?;
        Ok(Self {
            decoder,
            use_parallel_residual: fields.flag("use_parallel_residual", false)?,
            hidden_dropout: fields.probability("hidden_dropout", 0.0)?,
        })
    }
}

struct StableLmAttention {
    module: Module,
    projections: Projections,
    config: DecoderConfig,
    options: RunOptions,
}

impl StableLmAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for StableLmAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] =
            self.projections.project(hidden_states).map(|states| self.projections.split_heads(&states).transpose(1, 2));
        // Variables of this function, as Python's: what they hold lives until it returns.
        let (mut query_rot, query_pass) = split_rotary(&query_states, self.config.rotary_dim);
        let (mut key_rot, key_pass) = split_rotary(&key_states, self.config.rotary_dim);
        (query_rot, key_rot) = apply_rotary_pos_emb(&query_rot, &key_rot, &call.cos, &call.sin);
        query_states = cat(&[&query_rot, &query_pass], 3);
        key_states = cat(&[&key_rot, &key_pass], 3);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct StableLmDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: StableLmAttention,
    mlp: DecoderMlp,
    input_layernorm: LayerNorm,
    /// `None` where both branches have one norm.
    post_attention_layernorm: Option<LayerNorm>,
    dropout: Module,
    hidden_dropout: f64,
    options: RunOptions,
}

impl StableLmDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Config, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let norm = |name| LayerNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn: StableLmAttention::new(&at.at("self_attn"), decoder, options),
            mlp: DecoderMlp::new(&at.at("mlp"), decoder),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: (!config.use_parallel_residual).then(|| norm("post_attention_layernorm")),
            dropout: at.at("dropout").module(),
            hidden_dropout: config.hidden_dropout,
            options: options.clone(),
        }
    }

    fn dropped(&self, mlp_output: &Tensor) -> Tensor {
        let _dropout = self.dropout.enter();
        mlp_output.dropout(self.hidden_dropout, self.options.drops_out())
    }
}

impl DecoderLayer for StableLmDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = self.input_layernorm.forward(residual);
        let (self_attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        let Some(post_attention_layernorm) = &self.post_attention_layernorm else {
            let mut mlp_output = self.mlp.forward(&hidden_states);
            mlp_output = self.dropped(&mlp_output);
            return &(residual + &self_attn_output) + &mlp_output;
        };
        let residual = residual + &self_attn_output;
        let mut mlp_output = self.mlp.forward(&post_attention_layernorm.forward(&residual));
        mlp_output = self.dropped(&mlp_output);
        &residual + &mlp_output
    }
}
