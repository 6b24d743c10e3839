//! Llama 4's text models (transformers/models/llama4/modeling_llama4.py): three of four layers see a chunk of the row and turn queries and
//! keys as complex numbers; experts of which each computes all tokens, scaled by sigmoids, beside one that is shared.

mod experts;

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{AttentionOutput, LayerType, Norm, RotaryTables, rotate_complex};
use crate::op::arange;
use crate::tensor::Tensor;

use crate::model::family::attention::{Projections, SelfAttention, attend_with};
use crate::model::family::bounds::bound_weights;
use crate::model::family::decoder::{DecoderConfig, DecoderDefaults, FULL_AND_CHUNKED, layer_types};
use crate::model::family::gated_mlp::DecoderMlp;
use crate::model::family::layer::{DecoderLayer, LayerCall};
use crate::model::family::llama::DecoderForCausalLm;
use crate::model::family::{Family, Model, RunOptions};

use experts::{ExpertSizes, Llama4TextMoe};

pub(crate) const FAMILY: Family = Family { model_types: &["llama4_text"], build };

/// What `Llama4TextConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults = DecoderDefaults {
    vocab_size: 202_048,
    hidden_size: 5120,
    intermediate_size: 8192,
    num_hidden_layers: 48,
    num_attention_heads: 40,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    reads_mlp_bias: false,
    file: ModelingFile::Later,
    positions: 131_072,
    norm_eps: 1e-5,
    rope_theta: 500_000.0,
    ..DecoderDefaults::LLAMA
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config)?;
    let new_layer = |at: &Builder, layer, _: &DecoderConfig| Llama4TextDecoderLayer::new(at, layer, &config, options);
    let model = DecoderForCausalLm::<_, Llama4TextRmsNorm>::with_norms(at, config.decoder.clone(), options, new_layer);
    Ok(Box::new(model))
}

/// What the config has beyond a decoder's.
struct Config {
    decoder: DecoderConfig,
    experts: ExpertSizes,
    /// `intermediate_size_mlp`: of a layer without experts.
    dense: u64,
    /// Whether a layer has experts, of each layer.
    is_sparse: Vec<bool>,
    /// Of layers that turn queries and keys.
    qk_norm: bool,
    /// Of layers that do not.
    temperature: Option<Temperature>,
}

/// What queries far from the row's begin are multiplied by.
#[derive(Clone, Copy)]
struct Temperature {
    floor_scale: f64,
    attn_scale: f64,
}

impl Config {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        let mut decoder = DecoderConfig::read(fields, &DEFAULTS)?;
        let layers = decoder.num_hidden_layers;
        let turned = turned_layers(fields, layers)?;
        decoder.tables = RotaryTables::Complex;
        decoder.mask_types = FULL_AND_CHUNKED;
        decoder.sliding_window = fields.size("attention_chunk_size", 8192)?;
        decoder.layer_types = match fields.texts("layer_types")? {
            Some(names) => layer_types(&names, layers, LayerType::ChunkedAttention)?,
            None => turned
                .iter()
                .map(|turned| [LayerType::FullAttention, LayerType::ChunkedAttention][usize::from(*turned)])
                .collect(),
        };
        decoder.turned_layers = Some(turned.into());
        let experts = ExpertSizes {
            count: fields.size("num_local_experts", 16)?,
            per_token: fields.size("num_experts_per_tok", 1)?,
        };
        if experts.per_token > experts.count {
            let problem = format!("is {}, of {} experts", experts.per_token, experts.count);
            return Err(FieldError::new("num_experts_per_tok", problem));
        }
        let dense = fields.size("intermediate_size_mlp", 16_384)?;
        bound_weights(&[
            ("num_local_experts", [decoder.intermediate_size, decoder.hidden_size], layers * 3 * (experts.count + 1)),
            ("intermediate_size_mlp", [dense, decoder.hidden_size], 3 * layers),
        ])?;
        Ok(Self {
            experts,
            dense,
            is_sparse: sparse_layers(fields, layers)?,
            qk_norm: fields.flag("use_qk_norm", true)?,
            temperature: Temperature::read(fields)?,
            decoder,
        })
    }
}

impl Temperature {
    fn read(fields: &Fields) -> Result<Option<Self>, FieldError> {
        // Older configs say it as a number.
        let is_on = match fields.get("attn_temperature_tuning").and_then(serde_json::Value::as_u64) {
            Some(number) => number != 0,
            None => fields.flag("attn_temperature_tuning", true)?,
        };
        let floor_scale = fields.positive("floor_scale", 8192.0)?;
        let attn_scale = fields.number("attn_scale", 0.1)?;
        Ok(is_on.then_some(Self { floor_scale, attn_scale }))
    }
}

/// `no_rope_layers`, of which 1 means that a layer turns; else every layer but each last of `no_rope_layer_interval`.
fn turned_layers(fields: &Fields, layers: u64) -> Result<Vec<bool>, FieldError> {
    let key = "no_rope_layers";
    let interval = fields.size("no_rope_layer_interval", 4)?;
    let listed = numbers(fields, key)?.filter(|listed| !listed.is_empty());
    let Some(listed) = listed else { return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()) };
    if (listed.len() as u64) < layers {
        return Err(FieldError::new(key, format!("lists {} layers, num_hidden_layers is {layers}", listed.len())));
    }
    Ok(listed.iter().take(layers as usize).map(|turns| *turns != 0).collect())
}

/// `moe_layers`, or each last of `interleave_moe_layer_step`.
fn sparse_layers(fields: &Fields, layers: u64) -> Result<Vec<bool>, FieldError> {
    let step = fields.size("interleave_moe_layer_step", 1)?;
    let listed = numbers(fields, "moe_layers")?;
    let is_sparse = |layer: u64| match &listed {
        Some(listed) => listed.contains(&layer),
        None => (layer + 1).is_multiple_of(step),
    };
    Ok((0..layers).map(is_sparse).collect())
}

fn numbers(fields: &Fields, key: &'static str) -> Result<Option<Vec<u64>>, FieldError> {
    let Some(listed) = fields.get(key) else { return Ok(None) };
    let numbers: Option<_> = listed.as_array().and_then(|all| all.iter().map(serde_json::Value::as_u64).collect());
    numbers.map(Some).ok_or_else(|| FieldError::new(key, "must be a list of whole numbers"))
}

struct Llama4TextRmsNorm {
    module: Module,
    weight: Tensor,
    eps: f64,
}

impl Norm for Llama4TextRmsNorm {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self { module: at.module(), weight: at.parameter("weight", &[width], Init::Ones), eps }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let output = l2_norm(x, self.eps);
        &output * &self.weight
    }
}

/// `Llama4TextL2Norm`: `(x * rsqrt(x.pow(2).mean(-1) + eps)).type_as(x)` in fp32
fn l2_norm(x: &Tensor, eps: f64) -> Tensor {
    let normed = {
        let x = x.float();
        let inverse = {
            let shifted = {
                let mean = x.pow_scalar(2.0).mean_last();
                mean.add_scalar(eps)
            };
            shifted.rsqrt()
        };
        &x * &inverse
    };
    normed.to(x.dtype())
}

struct Llama4TextAttention {
    module: Module,
    projections: Projections,
    qk_norm: Option<Module>,
    temperature: Option<Temperature>,
    turns: bool,
    config: DecoderConfig,
    options: RunOptions,
}

impl Llama4TextAttention {
    fn new(at: &Builder, layer: usize, config: &Config, options: &RunOptions) -> Self {
        let turns = config.decoder.turns_layer(layer);
        Self {
            module: at.module(),
            projections: Projections::new(at, &config.decoder, "o_proj"),
            qk_norm: (config.qk_norm && turns).then(|| at.at("qk_norm").module()),
            temperature: config.temperature.filter(|_| !turns),
            turns,
            config: config.decoder.clone(),
            options: options.clone(),
        }
    }

    /// `torch.log1p(torch.floor((positions.float() + 1.0) / floor_scale)) * attn_scale + 1.0`, for queries [rows, tokens, heads, width]
    /// and the positions, which Python holds to the end.
    fn scales(&self, temperature: Temperature, query: &Tensor, call: &LayerCall) -> [Tensor; 2] {
        let (rows, tokens) = (query.size(0), query.size(1));
        let seen = call.cache.as_ref().map_or(0, |cache| cache.seq_length());
        let positions = arange(query.context(), tokens).add_int(seen);
        let mut attn_scales = positions.to(DType::Float32);
        attn_scales = attn_scales.add_scalar(1.0);
        attn_scales = attn_scales.div_scalar(temperature.floor_scale);
        attn_scales = attn_scales.floor();
        attn_scales = attn_scales.log1p();
        attn_scales = attn_scales.mul_scalar(temperature.attn_scale);
        attn_scales = attn_scales.add_scalar(1.0);
        [attn_scales.view(&[1, tokens, 1, 1]).expand(&[rows, tokens, 1, 1]), positions]
    }
}

impl SelfAttention for Llama4TextAttention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let mut query_states = self.projections.split_heads(&q_proj.forward(hidden_states));
        let mut key_states = self.projections.split_heads(&k_proj.forward(hidden_states));
        let mut value_states = self.projections.split_heads(&v_proj.forward(hidden_states)).transpose(1, 2);
        if self.turns {
            (query_states, key_states) = apply_rotary_emb(&query_states, &key_states, &call.cos);
        }
        if let Some(qk_norm) = &self.qk_norm {
            let _module = qk_norm.enter();
            query_states = l2_norm(&query_states, self.config.norm_eps);
            key_states = l2_norm(&key_states, self.config.norm_eps);
        }
        let scales = self.temperature.map(|temperature| self.scales(temperature, &query_states, call));
        if let Some([scales, _positions]) = &scales {
            query_states = {
                let scaled = &query_states * scales;
                scaled.to(query_states.dtype())
            };
        }
        query_states = query_states.transpose(1, 2);
        key_states = key_states.transpose(1, 2);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend_with(states, call, self.config.scores(), &self.options, None);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

/// `apply_rotary_emb` on [batch, tokens, heads, head_dim] queries and keys.
fn apply_rotary_emb(xq: &Tensor, xk: &Tensor, freqs_cis: &Tensor) -> (Tensor, Tensor) {
    let (xq_complex, xk_complex) = (xq.as_complex(), xk.as_complex());
    let freqs_cis = freqs_cis.unsqueeze(2);
    let xq_out = rotate_complex(&xq_complex, &freqs_cis);
    let xk_out = rotate_complex(&xk_complex, &freqs_cis);
    (xq_out.to(xq.dtype()), xk_out.to(xk.dtype()))
}

enum Feed {
    Sparse(Box<Llama4TextMoe>),
    Dense(Box<DecoderMlp>),
}

struct Llama4TextDecoderLayer {
    module: Module,
    layer: usize,
    self_attn: Llama4TextAttention,
    feed_forward: Feed,
    input_layernorm: Llama4TextRmsNorm,
    post_attention_layernorm: Llama4TextRmsNorm,
}

impl Llama4TextDecoderLayer {
    fn new(at: &Builder, layer: usize, config: &Config, options: &RunOptions) -> Self {
        let decoder = &config.decoder;
        let self_attn = Llama4TextAttention::new(&at.at("self_attn"), layer, config, options);
        let inner = &at.at("feed_forward");
        let feed_forward = if config.is_sparse.get(layer) == Some(&true) {
            Feed::Sparse(Box::new(Llama4TextMoe::new(inner, decoder, config.experts)))
        } else {
            let dense = DecoderConfig { intermediate_size: config.dense, ..decoder.clone() };
            Feed::Dense(Box::new(DecoderMlp::new(inner, &dense)))
        };
        let norm = |name| Llama4TextRmsNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn,
            feed_forward,
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
        }
    }
}

impl DecoderLayer for Llama4TextDecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let (attention_states, mut beside) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = residual + &attention_states;
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = match &self.feed_forward {
            Feed::Dense(mlp) => mlp.forward(&hidden_states),
            Feed::Sparse(moe) => {
                let (hidden_states, router_logits) = moe.forward(&hidden_states);
                // Python's `_`, in which attention weights were before.
                beside = Some(router_logits);
                hidden_states
            }
        };
        let output = &residual + &hidden_states.view(residual.sizes());
        drop(beside);
        output
    }
}
