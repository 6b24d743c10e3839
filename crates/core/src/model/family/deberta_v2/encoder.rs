//! DeBERTa's embeddings and layers.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::model::nn::{Embedding, LayerNorm};
use crate::op::{arange, index, ones, zeros};
use crate::tensor::Tensor;

use super::super::ForwardCall;
use super::super::bert::{BertIntermediate, BertOutput};
use super::super::encoder::{Encoder, EncoderLayer, run_layers};
use super::attention::{DisentangledSelfAttention, LayerCall, build_relative_position};
use super::config::Config;

struct DebertaV2Embeddings {
    module: Module,
    word_embeddings: Embedding,
    position_embeddings: Option<Embedding>,
    token_type_embeddings: Option<Embedding>,
    layer_norm: LayerNorm,
    dropout: Module,
    position_ids: Tensor,
    config: Config,
}

impl DebertaV2Embeddings {
    fn new(at: &Builder, config: &Config) -> Self {
        let (width, positions) = (config.bert.hidden_size, config.bert.max_position_embeddings);
        let table = |name, count, padding| Embedding::new(&at.at(name), count, width, padding);
        Self {
            module: at.module(),
            word_embeddings: table("word_embeddings", config.bert.vocab_size, config.bert.pad_token_id),
            position_embeddings: config.position_biased_input.then(|| table("position_embeddings", positions, None)),
            token_type_embeddings: (config.type_vocab_size > 0)
                .then(|| table("token_type_embeddings", config.type_vocab_size, None)),
            layer_norm: LayerNorm::new(&at.at("LayerNorm"), width, config.bert.layer_norm_eps),
            dropout: at.at("dropout").module(),
            position_ids: at.buffer(&[1, positions], DType::Int64, || (0..positions).map(|at| at as f64).collect()),
            config: config.clone(),
        }
    }

    fn forward(&self, input_ids: &Tensor, token_type_ids: &Tensor, mask: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let options = &self.config.options;
        let inputs_embeds = options.require_input_grads(self.word_embeddings.forward(input_ids));
        let mut embeddings = inputs_embeds.clone();
        let _position_embeddings = match &self.position_embeddings {
            Some(table) => {
                let position_embeddings = table.forward(&self.position_ids.narrow(1, 0..input_ids.size(1)));
                embeddings = &embeddings + &position_embeddings;
                position_embeddings
            }
            None => inputs_embeds.zeros_like(),
        };
        let _token_type_embeddings = self.token_type_embeddings.as_ref().map(|table| {
            let token_type_embeddings = table.forward(token_type_ids);
            embeddings = &embeddings + &token_type_embeddings;
            token_type_embeddings
        });
        embeddings = self.layer_norm.forward(&embeddings);
        let mask = mask.unsqueeze(2).to(embeddings.dtype());
        embeddings = &embeddings * &mask;
        self.config.dropped(&self.dropout, &embeddings, self.config.bert.hidden_dropout)
    }
}

struct DebertaV2Layer {
    module: Module,
    attention: Module,
    self_attention: DisentangledSelfAttention,
    attention_output: BertOutput,
    intermediate: BertIntermediate,
    output: BertOutput,
}

impl DebertaV2Layer {
    fn new(at: &Builder, config: &Config) -> Self {
        let (attention, bert) = (at.at("attention"), config.bert);
        Self {
            module: at.module(),
            attention: attention.module(),
            self_attention: DisentangledSelfAttention::new(&attention.at("self"), config),
            attention_output: BertOutput::new(&attention.at("output"), bert.hidden_size, bert, &config.options),
            intermediate: BertIntermediate::new(&at.at("intermediate"), bert),
            output: BertOutput::new(&at.at("output"), bert.intermediate_size, bert, &config.options),
        }
    }
}

impl EncoderLayer for DebertaV2Layer {
    type Call = LayerCall;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let attention_output = {
            let _attention = self.attention.enter();
            let self_output = self.self_attention.forward(hidden_states, call);
            self.attention_output.forward(&self_output, hidden_states)
        };
        let intermediate_output = self.intermediate.forward(&attention_output);
        self.output.forward(&intermediate_output, &attention_output)
    }
}

struct DebertaV2Encoder {
    module: Module,
    layer: Vec<Rc<DebertaV2Layer>>,
    rel_embeddings: Option<Embedding>,
    layer_norm: Option<LayerNorm>,
    config: Config,
}

impl DebertaV2Encoder {
    fn new(at: &Builder, config: &Config) -> Self {
        let layer = |layer| Rc::new(DebertaV2Layer::new(&at.at("layer").element(layer), config));
        let (width, eps) = (config.bert.hidden_size, config.bert.layer_norm_eps);
        Self {
            module: at.module(),
            layer: (0..config.bert.num_hidden_layers).map(layer).collect(),
            rel_embeddings: config
                .relative
                .map(|relative| Embedding::new(&at.at("rel_embeddings"), 2 * relative.span, width, None)),
            layer_norm: config.norms_table.then(|| LayerNorm::new(&at.at("LayerNorm"), width, eps)),
            config: config.clone(),
        }
    }

    fn rel_embedding(&self) -> Option<Tensor> {
        let weight = &self.rel_embeddings.as_ref()?.weight;
        Some(self.layer_norm.as_ref().map_or_else(|| weight.clone(), |layer_norm| layer_norm.forward(weight)))
    }

    /// The states before the layers and after each: all are kept until the model returns.
    fn forward(&self, hidden_states: &Tensor, mask: &Tensor) -> Vec<Tensor> {
        let _module = self.module.enter();
        let attention_mask = {
            let extended = mask.unsqueeze(1).unsqueeze(2);
            &extended * &extended.squeeze(2).unsqueeze(3)
        };
        let relative_pos = self.config.relative.map(|relative| build_relative_position(hidden_states, relative));
        let call = LayerCall { attention_mask, relative_pos, rel_embeddings: self.rel_embedding() };
        let mut all_hidden_states = vec![hidden_states.clone()];
        let mut next_kv = hidden_states.clone();
        for layer in self.layer.chunks(1) {
            next_kv = run_layers(layer, &next_kv, |_| call.clone(), &self.config.options);
            all_hidden_states.push(next_kv.clone());
        }
        all_hidden_states
    }
}

pub(super) struct DebertaV2Model {
    module: Module,
    embeddings: DebertaV2Embeddings,
    encoder: DebertaV2Encoder,
    config: Config,
}

impl DebertaV2Model {
    pub(super) fn new(at: &Builder, config: &Config) -> Self {
        Self {
            module: at.module(),
            embeddings: DebertaV2Embeddings::new(&at.at("embeddings"), config),
            encoder: DebertaV2Encoder::new(&at.at("encoder"), config),
            config: config.clone(),
        }
    }

    pub(super) fn word_embeddings(&self) -> &Embedding {
        &self.embeddings.word_embeddings
    }

    /// `warn_if_padding_and_no_attention_mask`: looks at the first and the last token of each row.
    fn warn_if_padding(&self, input_ids: &Tensor) {
        let Some(pad_token_id) = self.config.bert.pad_token_id else { return };
        let ends = {
            let places = arange(input_ids.context(), 2);
            index(input_ids, &[input_ids.size(0), 2], &[None, Some(&places)])
        };
        let is_padding = ends.eq_number(pad_token_id as f64);
        let _any = is_padding.any();
    }
}

impl Encoder for DebertaV2Model {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let (input_ids, context) = (call.input_ids, call.input_ids.context());
        let sizes = [input_ids.size(0), input_ids.size(1)];
        let attention_mask = match call.attention_mask {
            Some(attention_mask) => attention_mask.clone(),
            None => {
                self.warn_if_padding(input_ids);
                ones(context, &sizes, DType::Float32)
            }
        };
        let token_type_ids = zeros(context, &sizes, DType::Int64);
        let embedding_output = self.embeddings.forward(input_ids, &token_type_ids, &attention_mask);
        let mut encoded_layers = self.encoder.forward(&embedding_output, &attention_mask);
        let sequence_output = encoded_layers.pop().unwrap_or(embedding_output);
        drop(encoded_layers);
        sequence_output
    }
}
