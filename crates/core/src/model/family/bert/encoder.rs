//! BERT's encoder, which RoBERTa's and ELECTRA's modeling files copy.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::model::nn::{Activation, AttentionOutput, LayerNorm, Linear};
use crate::tensor::Tensor;

use super::super::encoder::{EncoderLayer, attend, bidirectional_mask, run_layers};
use super::super::{ForwardCall, RunOptions};
use super::Config;

struct BertSelfAttention {
    module: Module,
    query: Linear,
    key: Linear,
    value: Linear,
    config: Config,
    options: RunOptions,
}

impl BertSelfAttention {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let linear = |name| Linear::new(&at.at(name), config.hidden_size, config.hidden_size, true);
        let module = at.module();
        Self {
            module,
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens) = (hidden_states.size(0), hidden_states.size(1));
        let heads = self.config.num_attention_heads;
        let shape = [rows, tokens, heads, self.config.hidden_size / heads];
        let query_layer = self.query.forward(hidden_states).view(&shape).transpose(1, 2);
        let key_layer = self.key.forward(hidden_states).view(&shape).transpose(1, 2);
        let value_layer = self.value.forward(hidden_states).view(&shape).transpose(1, 2);
        let (mut attn_output, attn_weights) = attend(
            [&query_layer, &key_layer, &value_layer],
            mask,
            (self.config.attention_dropout, None),
            &self.options,
        );
        attn_output = attn_output.reshape(&[rows, tokens, self.config.hidden_size]).contiguous();
        (attn_output, attn_weights)
    }
}

/// `BertSelfOutput` and `BertOutput`: back to the model's width, dropout, residual, norm.
pub(crate) struct BertOutput {
    module: Module,
    dense: Linear,
    layer_norm: LayerNorm,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl BertOutput {
    pub(crate) fn new(at: &Builder, inputs: u64, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), inputs, config.hidden_size, true),
            layer_norm: LayerNorm::new(&at.at("LayerNorm"), config.hidden_size, config.layer_norm_eps),
            dropout: at.at("dropout").module(),
            config,
            options: options.clone(),
        }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor, input_tensor: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.dense.forward(hidden_states);
        hidden_states = {
            let _dropout = self.dropout.enter();
            hidden_states.dropout(self.config.hidden_dropout, self.options.drops_out())
        };
        let sum = &hidden_states + input_tensor;
        self.layer_norm.forward(&sum)
    }
}

struct BertAttention {
    module: Module,
    self_attention: BertSelfAttention,
    output: BertOutput,
}

impl BertAttention {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            self_attention: BertSelfAttention::new(&at.at("self"), config, options),
            output: BertOutput::new(&at.at("output"), config.hidden_size, config, options),
        }
    }

    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let _module = self.module.enter();
        let (attention_output, attn_weights) = self.self_attention.forward(hidden_states, mask);
        (self.output.forward(&attention_output, hidden_states), attn_weights)
    }
}

pub(crate) struct BertIntermediate {
    module: Module,
    dense: Linear,
    act: Module,
    activation: Activation,
}

impl BertIntermediate {
    pub(crate) fn new(at: &Builder, config: Config) -> Self {
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), config.hidden_size, config.intermediate_size, true),
            act: at.at("intermediate_act_fn").module(),
            activation: config.activation,
        }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = self.dense.forward(hidden_states);
        let _act = self.act.enter();
        self.activation.forward(&hidden_states)
    }
}

struct BertLayer {
    module: Module,
    attention: BertAttention,
    intermediate: BertIntermediate,
    output: BertOutput,
}

impl BertLayer {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            attention: BertAttention::new(&at.at("attention"), config, options),
            intermediate: BertIntermediate::new(&at.at("intermediate"), config),
            output: BertOutput::new(&at.at("output"), config.intermediate_size, config, options),
        }
    }
}

impl EncoderLayer for BertLayer {
    type Call = Option<Tensor>;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, mask: &Option<Tensor>) -> Tensor {
        let _module = self.module.enter();
        let (attention_output, _weights) = self.attention.forward(hidden_states, mask.as_ref());
        let intermediate_output = self.intermediate.forward(&attention_output);
        self.output.forward(&intermediate_output, &attention_output)
    }
}

/// The layers of the model at `at`.
pub(crate) struct BertEncoder {
    module: Module,
    layer: Vec<Rc<BertLayer>>,
    options: RunOptions,
}

impl BertEncoder {
    pub(crate) fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let encoder = at.at("encoder");
        let layer = |layer: u64| Rc::new(BertLayer::new(&encoder.at("layer").element(layer), config, options));
        Self {
            module: encoder.module(),
            layer: (0..config.num_hidden_layers).map(layer).collect(),
            options: options.clone(),
        }
    }

    /// The model's masks, then its layers.
    pub(crate) fn forward(&self, embedding_output: &Tensor, call: &ForwardCall) -> Tensor {
        let mask = bidirectional_mask(embedding_output, call, &self.options);
        let _encoder = self.module.enter();
        run_layers(&self.layer, embedding_output, |_| mask.clone(), &self.options)
    }
}
