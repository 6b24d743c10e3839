//! GLM-4-0414 (transformers/models/glm4/modeling_glm4.py): GLM with a norm behind each branch too.

use crate::building::{BuildError, Builder, Module};
use crate::job::ModelSpec;
use crate::model::nn::RmsNorm;
use crate::tensor::Tensor;

use super::attention::SelfAttention;
use super::decoder::DecoderConfig;
use super::glm::{GlmAttention, GlmMlp, read_config};
use super::layer::{DecoderLayer, FeedForward, LayerCall};
use super::llama::DecoderForCausalLm;
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["glm4"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let new_layer = |at: &Builder, layer, config: &DecoderConfig| Glm4DecoderLayer::new(at, layer, config, options);
    Ok(Box::new(DecoderForCausalLm::with_layers(at, read_config(&model.config)?, options, new_layer)))
}

struct Glm4DecoderLayer {
    module: Module,
    layer: usize,
    self_attn: GlmAttention,
    mlp: GlmMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    post_self_attn_layernorm: RmsNorm,
    post_mlp_layernorm: RmsNorm,
}

impl Glm4DecoderLayer {
    fn new(at: &Builder, layer: usize, config: &DecoderConfig, options: &RunOptions) -> Self {
        let norm = |name| RmsNorm::new(&at.at(name), config.hidden_size, config.norm_eps);
        Self {
            module: at.module(),
            layer,
            self_attn: GlmAttention::new(&at.at("self_attn"), config, options),
            mlp: GlmMlp::new(&at.at("mlp"), config),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            post_self_attn_layernorm: norm("post_self_attn_layernorm"),
            post_mlp_layernorm: norm("post_mlp_layernorm"),
        }
    }
}

impl DecoderLayer for Glm4DecoderLayer {
    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.input_layernorm.forward(residual);
        let (attn_output, _weights) = self.self_attn.forward(&hidden_states, call, self.layer);
        hidden_states = attn_output;
        hidden_states = self.post_self_attn_layernorm.forward(&hidden_states);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.post_attention_layernorm.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states, call);
        hidden_states = self.post_mlp_layernorm.forward(&hidden_states);
        &residual + &hidden_states
    }
}
