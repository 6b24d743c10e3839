//! Cohere's Command R (transformers/models/cohere/modeling_cohere.py), and the layers that Command R7B shares with it: both branches
//! from one norm without bias, neighbours turned in fp32, logits multiplied.

use crate::building::{BuildError, Builder, Init, Module, Part};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{AttentionOutput, Norm, RotaryTables, rotate_pairs};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::{DecoderLayer, LayerCall};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["cohere"], build };

/// What `CohereConfig` and `Cohere2Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 256_000,
    hidden_size: 8192,
    intermediate_size: 22528,
    num_hidden_layers: 40,
    num_attention_heads: 64,
    tie_word_embeddings: true,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 8192,
    norm_key: "layer_norm_eps",
    norm_eps: 1e-5,
    pad_token_id: Some(0),
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let defaults = DecoderDefaults { rope_theta: 500_000.0, ..DEFAULTS };
    let mut config = read_config(&model.config, &defaults)?;
    config.qk_norm = model.config.flag("use_qk_norm", false)?;
    Ok(new_model(at, config, options))
}

/// What both read.
fn read_config(fields: &Fields, defaults: &DecoderDefaults) -> Result<DecoderConfig, FieldError> {
    Ok(DecoderConfig {
        tables: RotaryTables::Interleaved,
        logit_scale: Some(fields.number("logit_scale", 0.0625)?),
        ..DecoderConfig::read(fields, defaults)?
    })
}

/// Cohere 2's, whose heads always divide the width.
pub(crate) fn read_cohere2_config(fields: &Fields) -> Result<DecoderConfig, FieldError> {
    read_config(fields, &DEFAULTS)
}

/// `CohereForCausalLM`, and `Cohere2ForCausalLM`, which differs by its config alone.
pub(crate) fn new_model(at: &Builder, config: DecoderConfig, options: &RunOptions) -> Box<dyn Model> {
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| CohereDecoderLayer::new(at, layer, config, options);
    Box::new(DecoderForCausalLm::<_, CohereLayerNorm>::with_norms(at, config, options, new_layer))
}

/// `CohereLayerNorm`: in fp32 to the end, without bias.
struct CohereLayerNorm {
    module: Module,
    weight: Tensor,
    eps: f64,
}

impl CohereLayerNorm {
    /// With a weight of these sizes: a norm of heads has one for each.
    fn of_sizes(at: &Builder, sizes: &[u64], eps: f64) -> Self {
        Self { module: at.module(), weight: at.parameter("weight", sizes, Init::Ones), eps }
    }
}

impl Norm for CohereLayerNorm {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self::of_sizes(at, &[width], eps)
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let input = &self.module.hook_input(Part::Itself, input);
        let mut hidden_states = input.to(DType::Float32);
        let mean = hidden_states.mean_last();
        // Inner blocks are Python's temporaries: what they drop here is freed in the middle of the expression.
        let variance = {
            let squared = {
                let deviation = &hidden_states - &mean;
                deviation.pow_scalar(2.0)
            };
            squared.mean_last()
        };
        hidden_states = {
            let deviation = &hidden_states - &mean;
            let inverse = variance.add_scalar(self.eps).rsqrt();
            &deviation * &inverse
        };
        hidden_states = &self.weight.to(DType::Float32) * &hidden_states;
        hidden_states.to(input.dtype())
    }
}

/// `apply_rotary_pos_emb`: neighbours, in fp32.
fn apply_rotary_pos_emb(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let dtype = q.dtype();
    let (q, k) = (q.float(), k.float());
    let (cos, sin) = (cos.unsqueeze(1), sin.unsqueeze(1));
    let q_embed = rotate_pairs(&q, &cos, &sin);
    let k_embed = rotate_pairs(&k, &cos, &sin);
    (q_embed.to(dtype), k_embed.to(dtype))
}

struct CohereAttention {
    module: Module,
    projections: Projections,
    norms: Option<(CohereLayerNorm, CohereLayerNorm)>,
    config: DecoderConfig,
    options: RunOptions,
}

impl CohereAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        let norm = |name, heads| CohereLayerNorm::of_sizes(&at.at(name), &[heads, config.head_dim], config.norm_eps);
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            norms: config
                .qk_norm
                .then(|| (norm("q_norm", config.num_attention_heads), norm("k_norm", config.num_key_value_heads))),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for CohereAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let [mut query_states, mut key_states, mut value_states] =
            [q_proj, k_proj, v_proj].map(|projection| self.projections.split_heads(&projection.forward(hidden_states)));
        if let Some((q_norm, k_norm)) = &self.norms {
            query_states = q_norm.forward(&query_states);
            key_states = k_norm.forward(&key_states);
        }
        query_states = query_states.transpose(1, 2);
        key_states = key_states.transpose(1, 2);
        value_states = value_states.transpose(1, 2);
        if self.config.turns_layer(layer) {
            (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        }
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct CohereDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: CohereAttention,
    mlp: DecoderMlp,
    input_layernorm: CohereLayerNorm,
}

impl CohereDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &DecoderConfig, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            layer,
            self_attn: CohereAttention::new(&at.at("self_attn"), config, options),
            mlp: DecoderMlp::new(&at.at("mlp"), config),
            input_layernorm: CohereLayerNorm::new(&at.at("input_layernorm"), config.hidden_size, config.norm_eps),
        }
    }
}

impl DecoderLayer for CohereDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = self.input_layernorm.forward(residual);
        let (hidden_states_attention, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        let hidden_states_mlp = self.mlp.forward(&hidden_states);
        &(residual + &hidden_states_attention) + &hidden_states_mlp
    }
}
