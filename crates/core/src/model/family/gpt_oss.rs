//! gpt-oss (transformers/models/gpt_oss/modeling_gpt_oss.py): attention with a sink in every head, which has no SDPA, and experts with
//! biases whose gates are clamped.

use std::rc::Rc;

use serde_json::json;

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    AttentionOutput, Experts, ExpertsConfig, ExpertsForm, ExpertsKind, LayerType, Norm, RotaryTables, RouterLoss,
    Routing, Scores, repeat_kv, rotate_halves,
};
use crate::op::cat;
use crate::tensor::Tensor;

use super::attention::Projections;
use super::bounds::bound_weights;
use super::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_SLIDING};
use super::layer::{DecoderLayer, LayerCall};
use super::llama::DecoderForCausalLm;
use super::olmo2::Olmo2RmsNorm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["gpt_oss"], build };

/// What `GptOssConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 201_088,
    hidden_size: 2880,
    intermediate_size: 2880,
    num_hidden_layers: 36,
    num_attention_heads: 64,
    num_key_value_heads: Some(8),
    head_dim: Some(64),
    reads_attention_bias: false,
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 131_072,
    norm_eps: 1e-5,
    rope_theta: 150_000.0,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, at.dtype())?;
    let router_loss = Rc::new(RouterLoss::read(&model.config, &config.experts, 0.001)?);
    let new_layer = |at: &Builder, layer, decoder: &DecoderConfig| {
        GptOssDecoderLayer::new(at, layer, (decoder, &config.experts), &router_loss, options)
    };
    let model = DecoderForCausalLm::<_, GptOssRmsNorm>::with_norms(at, config.decoder.clone(), options, new_layer);
    Ok(Box::new(model.with_router(Rc::clone(&router_loss))))
}

/// `GptOssRMSNorm`: OLMo 2's, the product with the weight in fp32.
type GptOssRmsNorm = Olmo2RmsNorm;

/// What gpt-oss's config has beyond a decoder's.
struct Config {
    decoder: DecoderConfig,
    experts: ExpertsConfig,
}

impl Config {
    fn read(fields: &Fields, dtype: DType) -> Result<Self, FieldError> {
        if dtype == DType::Float16 {
            return Err(FieldError::unsimulated(
                "torch_dtype",
                "norms that stay in fp32 beside fp16 are not simulated",
            ));
        }
        let mut decoder = DecoderConfig::read(&with_rope_parameters(fields), &DEFAULTS)?;
        let alternating = |layer: u64| match layer.is_multiple_of(2) {
            true => LayerType::SlidingAttention,
            false => LayerType::FullAttention,
        };
        decoder = decoder.with_layer_types(fields, alternating)?;
        decoder.sliding_window = fields.size("sliding_window", 128)?;
        decoder.mask_types = FULL_AND_SLIDING;
        decoder.masks_read_positions = false;
        decoder.tables = RotaryTables::Once;
        decoder.qkv_bias = fields.flag("attention_bias", true)?;
        decoder.o_bias = decoder.qkv_bias;
        let num_experts = fields.optional_size("num_local_experts")?.or(fields.optional_size("num_experts")?);
        let experts = ExpertsConfig {
            hidden_size: decoder.hidden_size,
            intermediate_size: decoder.intermediate_size,
            num_experts: num_experts.unwrap_or(128),
            num_experts_per_tok: fields.size("num_experts_per_tok", 4)?,
            activation: decoder.activation,
            scores: Scores { softmax_casts: false, normalized: false, cast_back: false },
            form: ExpertsForm::read(fields)?,
            kind: ExpertsKind::ClampedWithBiases { alpha: 1.702, limit: 7.0 },
        };
        let inner = decoder.num_hidden_layers * 3 * experts.num_experts;
        bound_weights(&[("num_local_experts", [decoder.intermediate_size, decoder.hidden_size], inner)])?;
        experts.check("intermediate_size", dtype)?;
        Ok(Self { decoder, experts })
    }
}

/// A config that says nothing of rotary embeddings is stretched by yarn.
fn with_rope_parameters(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    if fields.get("rope_parameters").is_none() && fields.get("rope_scaling").is_none() {
        let yarn = json!({
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
            "original_max_position_embeddings": 4096,
        });
        fields.0.insert("rope_parameters".to_owned(), yarn);
    }
    fields
}

struct GptOssTopKRouter {
    module: Module,
    weight: Tensor,
    bias: Tensor,
    top_k: u64,
    router_loss: Rc<RouterLoss>,
}

impl GptOssTopKRouter {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        at.lack_adapters(&["router", "router.weight"]);
        Self {
            module: at.module(),
            weight: at.parameter("weight", &[config.num_experts, config.hidden_size], Init::Normal),
            bias: at.parameter("bias", &[config.num_experts], Init::Normal),
            top_k: config.num_experts_per_tok,
            router_loss: Rc::clone(router_loss),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Routing {
        let _module = self.module.enter();
        let logits = hidden_states.linear(&self.weight, Some(&self.bias));
        let (router_top_value, chosen) = logits.topk(self.top_k);
        let weights = router_top_value.softmax(Some(router_top_value.dtype()));
        self.router_loss.note(&logits);
        Routing { logits, weights, chosen }
    }
}

struct GptOssMlp {
    module: Module,
    router: GptOssTopKRouter,
    experts: Experts,
}

impl GptOssMlp {
    fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        Self {
            module: at.module(),
            router: GptOssTopKRouter::new(&at.at("router"), config, router_loss),
            experts: Experts::new(&at.at("experts"), config),
        }
    }

    /// Its output, and the weights of each token's experts.
    fn forward(&self, x: &Tensor, call: &LayerCall) -> (Tensor, Tensor) {
        let _module = self.module.enter();
        let mut hidden_states = x.reshape(&[x.numel() / x.size(-1), x.size(-1)]);
        let routing = self.router.forward(&hidden_states);
        hidden_states = self.experts.forward(&hidden_states, &routing, call.decodes);
        (hidden_states.reshape(x.sizes()), routing.weights)
    }
}

/// `_apply_rotary_emb`: halves of heads are turned, and joined again.
fn apply_rotary_emb(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let [first_half, second_half] = x.split_last();
    rotate_halves(&first_half, &second_half, cos, sin)
}

/// `eager_attention_forward`: each head's sink takes its part of the softmax and is dropped.
fn eager_attention_forward(
    [query, key, value]: [&Tensor; 3],
    mask: Option<&Tensor>,
    sinks: &Tensor,
    (dropout, scaling): (f64, f64),
) -> AttentionOutput {
    let groups = query.size(1) / key.size(1).max(1);
    let (key_states, value_states) = (repeat_kv(key, groups), repeat_kv(value, groups));
    let mut attn_weights = query.matmul(&key_states.transpose(2, 3)).mul_scalar(scaling);
    if let Some(mask) = mask {
        attn_weights = &attn_weights + mask;
    }
    let [rows, heads, tokens, keys] = [0, 1, 2, 3].map(|at| attn_weights.size(at));
    let sinks = sinks.reshape(&[1, heads, 1, 1]).expand(&[rows, heads, tokens, 1]);
    let mut combined_logits = cat(&[&attn_weights, &sinks], 3);
    combined_logits = {
        let largest = combined_logits.max_last();
        &combined_logits - &largest
    };
    let probs = combined_logits.softmax(Some(combined_logits.dtype()));
    let scores = probs.slice(3, 0..keys);
    attn_weights = scores.dropout(dropout, true).to(value_states.dtype());
    let attn_output = attn_weights.matmul(&value_states);
    (attn_output.transpose(1, 2).contiguous(), Some(attn_weights))
}

struct GptOssAttention {
    module: Module,
    projections: Projections,
    sinks: Tensor,
    config: DecoderConfig,
    options: RunOptions,
}

impl GptOssAttention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            sinks: at.parameter("sinks", &[config.num_attention_heads], Init::Normal),
            config: config.clone(),
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let [mut query_states, mut key_states, mut value_states] = self.projections.heads_first(hidden_states);
        (query_states, key_states) = {
            let (cos, sin) = (call.cos.unsqueeze(1), call.sin.unsqueeze(1));
            (apply_rotary_emb(&query_states, &cos, &sin), apply_rotary_emb(&key_states, &cos, &sin))
        };
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let (dropout, scaling) = self.config.scores();
        let states = [&query_states, &key_states, &value_states];
        let numbers = (self.options.active_call(dropout), scaling);
        let (attn_output, attn_weights) = eager_attention_forward(states, call.mask.as_ref(), &self.sinks, numbers);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct GptOssDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: GptOssAttention,
    mlp: GptOssMlp,
    input_layernorm: GptOssRmsNorm,
    post_attention_layernorm: GptOssRmsNorm,
}

impl GptOssDecoderLayer {
    fn new(
        at: &Builder,
        layer: usize,
        (config, experts): (&DecoderConfig, &ExpertsConfig),
        router_loss: &Rc<RouterLoss>,
        options: &RunOptions,
    ) -> Self {
        let norm = |name| GptOssRmsNorm::new(&at.at(name), config.hidden_size, config.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn: GptOssAttention::new(&at.at("self_attn"), config, options),
            mlp: GptOssMlp::new(&at.at("mlp"), experts, router_loss),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
        }
    }
}

impl DecoderLayer for GptOssDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        // `hidden_states, _ = ...` twice: the weights of attention go when those of the experts are there.
        let (attn_output, attn_weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        let (mlp_output, _router_scores) = self.mlp.forward(&hidden_states, call);
        drop(attn_weights);
        hidden_states = mlp_output;
        &residual + &hidden_states
    }
}
