//! OLMo 2 (transformers/models/olmo2/modeling_olmo2.py), and the layers that OLMo 3 shares with it: norms behind both branches,
//! in fp32 to the end, and norms over all heads of queries and keys.

use crate::building::{BuildError, Builder, Init, Module, Part};
use crate::dtype::DType;
use crate::job::ModelSpec;
use crate::model::nn::{AttentionOutput, Norm};
use crate::tensor::Tensor;

use super::attention::{Projections, SelfAttention, attend};
use super::decoder::{DecoderConfig, DecoderDefaults};
use super::gated_mlp::DecoderMlp;
use super::layer::{DecoderLayer, LayerCall};
use super::llama::DecoderForCausalLm;
use super::olmo::{self, apply_rotary_pos_emb};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["olmo2"], build };

/// `Olmo2Config`
pub(crate) const DEFAULTS: DecoderDefaults = DecoderDefaults { norm_eps: 1e-5, ..olmo::DEFAULTS };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = DecoderConfig { float_tables: true, ..DecoderConfig::read(&model.config, &DEFAULTS)? };
    Ok(new_model(at, config, options))
}

/// `Olmo2ForCausalLM`, and `Olmo3ForCausalLM`, which differs by its config alone.
pub(crate) fn new_model(at: &Builder, config: DecoderConfig, options: &RunOptions) -> Box<dyn Model> {
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| Olmo2DecoderLayer::new(at, layer, config, options);
    Box::new(DecoderForCausalLm::<_, Olmo2RmsNorm>::with_norms(at, config, options, new_layer))
}

/// `Olmo2RMSNorm`: the product with the weight in fp32.
pub(crate) struct Olmo2RmsNorm {
    module: Module,
    weight: Tensor,
    eps: f64,
}

impl Norm for Olmo2RmsNorm {
    fn new(at: &Builder, width: u64, eps: f64) -> Self {
        Self { module: at.module(), weight: at.parameter("weight", &[width], Init::Ones), eps }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let input = &self.module.hook_input(Part::Itself, input);
        let mut hidden_states = input.to(DType::Float32);
        let variance = hidden_states.pow_scalar(2.0).mean_last();
        hidden_states = {
            let inverse = variance.add_scalar(self.eps).rsqrt();
            &hidden_states * &inverse
        };
        (&self.weight * &hidden_states).to(input.dtype())
    }
}

struct Olmo2Attention {
    module: Module,
    projections: Projections,
    q_norm: Olmo2RmsNorm,
    k_norm: Olmo2RmsNorm,
    config: DecoderConfig,
    options: RunOptions,
}

impl Olmo2Attention {
    fn new(at: &Builder, config: &DecoderConfig, options: &RunOptions) -> Self {
        let (query_width, key_value_width) = config.widths();
        Self {
            module: at.module(),
            projections: Projections::new(at, config, "o_proj"),
            q_norm: Olmo2RmsNorm::new(&at.at("q_norm"), query_width, config.norm_eps),
            k_norm: Olmo2RmsNorm::new(&at.at("k_norm"), key_value_width, config.norm_eps),
            config: config.clone(),
            options: options.clone(),
        }
    }
}

impl SelfAttention for Olmo2Attention {
    fn forward(&self, hidden_states: &Tensor, call: &LayerCall, layer: usize) -> AttentionOutput {
        let _module = self.module.enter();
        let Projections { q_proj, k_proj, v_proj, .. } = &self.projections;
        let query_states = self.q_norm.forward(&q_proj.forward(hidden_states));
        let key_states = self.k_norm.forward(&k_proj.forward(hidden_states));
        let value_states = v_proj.forward(hidden_states);
        let [mut query_states, mut key_states, mut value_states] = [query_states, key_states, value_states]
            .map(|states| self.projections.split_heads(&states).transpose(1, 2));
        (query_states, key_states) = apply_rotary_pos_emb(&query_states, &key_states, &call.cos, &call.sin);
        if let Some(cache) = &call.cache {
            (key_states, value_states) = cache.update(layer, &key_states, &value_states);
        }
        let states = [&query_states, &key_states, &value_states];
        let (attn_output, attn_weights) = attend(states, call, self.config.scores(), &self.options);
        (self.projections.merge_heads(attn_output), attn_weights)
    }
}

struct Olmo2DecoderLayer {
    module: Module,
    layer: usize,
    self_attn: Olmo2Attention,
    mlp: DecoderMlp,
    post_attention_layernorm: Olmo2RmsNorm,
    post_feedforward_layernorm: Olmo2RmsNorm,
}

impl Olmo2DecoderLayer {
    fn new(at: &Builder, layer: usize, config: &DecoderConfig, options: &RunOptions) -> Self {
        let norm = |name| Olmo2RmsNorm::new(&at.at(name), config.hidden_size, config.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn: Olmo2Attention::new(&at.at("self_attn"), config, options),
            mlp: DecoderMlp::new(&at.at("mlp"), config),
            post_attention_layernorm: norm("post_attention_layernorm"),
            post_feedforward_layernorm: norm("post_feedforward_layernorm"),
        }
    }
}

impl DecoderLayer for Olmo2DecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let (mut hidden_states, _weights) = self.self_attn.forward(residual, call, self.layer);
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.mlp.forward(&hidden_states);
        hidden_states = self.post_feedforward_layernorm.forward(&hidden_states);
        &residual + &hidden_states
    }
}
