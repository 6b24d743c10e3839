//! DistilBERT with its heads (transformers/models/distilbert/modeling_distilbert.py).

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Head, ModelSpec};
use crate::model::nn::{Activation, AttentionOutput, Embedding, LayerNorm, Linear, masked_lm_loss};
use crate::tensor::Tensor;

use super::bounds::{bound_weights, check_divides};
use super::decoder::{initializer_range, padding_row};
use super::encoder::{
    BaseModel, Encoder, EncoderLayer, ForTokenClassification, attend, bidirectional_mask, run_layers,
};
use super::heads::{Classes, classified};
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["distilbert"], build };

const LAYER_NORM_EPS: f64 = 1e-12;

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, options)?;
    let at = &at.deviating(config.initializer_range);
    Ok(match model.beside.head {
        // Images are refused before.
        Head::LanguageModel | Head::ImageClassification => Box::new(DistilBertForMaskedLm::new(at, &config)),
        Head::SequenceClassification => Box::new(DistilBertForSequenceClassification::new(at, &config)),
        Head::Base => {
            let distilbert = DistilBertModel::new(at, &config);
            BaseModel::boxed(at, distilbert, |model| &model.embeddings.word_embeddings, None)
        }
        Head::TokenClassification => {
            let distilbert = DistilBertModel::new(&at.at("distilbert"), &config);
            let classes = Classes { num_labels: config.num_labels, dropout: config.dropout };
            Box::new(ForTokenClassification::new(at, distilbert, config.dim, classes, options))
        }
    })
}

/// What `DistilBertConfig` has (transformers 5.17), under its own names.
#[derive(Clone)]
struct Config {
    vocab_size: u64,
    max_position_embeddings: u64,
    n_layers: u64,
    n_heads: u64,
    dim: u64,
    hidden_dim: u64,
    dropout: f64,
    attention_dropout: f64,
    seq_classif_dropout: f64,
    activation: Activation,
    initializer_range: f64,
    pad_token_id: Option<u64>,
    tie_word_embeddings: bool,
    num_labels: u64,
    options: RunOptions,
}

impl Config {
    fn read(fields: &Fields, options: &RunOptions) -> Result<Self, FieldError> {
        let vocab_size = fields.size("vocab_size", 30522)?;
        // `attribute_map`: each has Llama's name too.
        let size = |own, other, default| fields.size(own, fields.size(other, default)?);
        let config = Self {
            vocab_size,
            max_position_embeddings: fields.size("max_position_embeddings", 512)?,
            n_layers: fields.layers("n_layers", fields.layers("num_hidden_layers", 6)?)?,
            n_heads: size("n_heads", "num_attention_heads", 12)?,
            dim: size("dim", "hidden_size", 768)?,
            hidden_dim: fields.size("hidden_dim", 4 * 768)?,
            dropout: fields.probability("dropout", 0.1)?,
            attention_dropout: fields.probability("attention_dropout", 0.1)?,
            seq_classif_dropout: fields.probability("seq_classif_dropout", 0.2)?,
            activation: Activation::from_name("activation", fields.text("activation", "gelu")?)?,
            initializer_range: initializer_range(fields)?,
            pad_token_id: padding_row(fields, Some(0), vocab_size),
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            num_labels: fields.num_labels()?,
            options: options.clone(),
        };
        check_divides("n_heads", config.n_heads, "dim", config.dim)?;
        bound_weights(&[
            ("vocab_size", [config.vocab_size, config.dim], 2),
            ("max_position_embeddings", [config.max_position_embeddings, config.dim], 1),
            ("hidden_dim", [config.hidden_dim, config.dim], 2 * config.n_layers),
            ("dim", [config.dim, config.dim], 4 * config.n_layers),
        ])?;
        Ok(config)
    }

    fn dropped(&self, at: &Module, states: &Tensor, probability: f64) -> Tensor {
        let _dropout = at.enter();
        states.dropout(probability, self.options.drops_out())
    }
}

struct Embeddings {
    module: Module,
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    layer_norm: LayerNorm,
    dropout: Module,
    position_ids: Tensor,
    config: Config,
}

impl Embeddings {
    fn new(at: &Builder, config: &Config) -> Self {
        let positions = config.max_position_embeddings;
        Self {
            module: at.module(),
            word_embeddings: Embedding::new(
                &at.at("word_embeddings"),
                config.vocab_size,
                config.dim,
                config.pad_token_id,
            ),
            position_embeddings: Embedding::new(&at.at("position_embeddings"), positions, config.dim, None),
            layer_norm: LayerNorm::new(&at.at("LayerNorm"), config.dim, LAYER_NORM_EPS),
            dropout: at.at("dropout").module(),
            position_ids: at.buffer(&[1, positions], DType::Int64, || (0..positions).map(|at| at as f64).collect()),
            config: config.clone(),
        }
    }

    fn forward(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let inputs_embeds = self.config.options.require_input_grads(self.word_embeddings.forward(input_ids));
        let position_ids = self.position_ids.narrow(1, 0..input_ids.size(1));
        let position_embeddings = self.position_embeddings.forward(&position_ids);
        let mut embeddings = &inputs_embeds + &position_embeddings;
        embeddings = self.layer_norm.forward(&embeddings);
        self.config.dropped(&self.dropout, &embeddings, self.config.dropout)
    }
}

struct DistilBertSelfAttention {
    module: Module,
    q_lin: Linear,
    k_lin: Linear,
    v_lin: Linear,
    out_lin: Linear,
    config: Config,
}

impl DistilBertSelfAttention {
    fn new(at: &Builder, config: &Config) -> Self {
        let linear = |name| Linear::new(&at.at(name), config.dim, config.dim, true);
        Self {
            module: at.module(),
            q_lin: linear("q_lin"),
            k_lin: linear("k_lin"),
            v_lin: linear("v_lin"),
            out_lin: linear("out_lin"),
            config: config.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let _module = self.module.enter();
        let (rows, tokens, heads) = (hidden_states.size(0), hidden_states.size(1), self.config.n_heads);
        let shape = [rows, tokens, heads, self.config.dim / heads];
        let query_layer = self.q_lin.forward(hidden_states).view(&shape).transpose(1, 2);
        let key_layer = self.k_lin.forward(hidden_states).view(&shape).transpose(1, 2);
        let value_layer = self.v_lin.forward(hidden_states).view(&shape).transpose(1, 2);
        let (dropout, options) = ((self.config.attention_dropout, None), &self.config.options);
        let (mut attn_output, attn_weights) = attend([&query_layer, &key_layer, &value_layer], mask, dropout, options);
        attn_output = attn_output.reshape(&[rows, tokens, self.config.dim]).contiguous();
        attn_output = self.out_lin.forward(&attn_output);
        (attn_output, attn_weights)
    }
}

/// `FFN`: two linear layers, of which the second drops out.
struct FeedForward {
    module: Module,
    dropout: Module,
    lin1: Linear,
    lin2: Linear,
    activation: Module,
    config: Config,
}

impl FeedForward {
    fn new(at: &Builder, config: &Config) -> Self {
        Self {
            module: at.module(),
            dropout: at.at("dropout").module(),
            lin1: Linear::new(&at.at("lin1"), config.dim, config.hidden_dim, true),
            lin2: Linear::new(&at.at("lin2"), config.hidden_dim, config.dim, true),
            activation: at.at("activation").module(),
            config: config.clone(),
        }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut x = self.lin1.forward(input);
        x = {
            let _activation = self.activation.enter();
            self.config.activation.forward(&x)
        };
        x = self.lin2.forward(&x);
        self.config.dropped(&self.dropout, &x, self.config.dropout)
    }
}

struct TransformerBlock {
    module: Module,
    attention: DistilBertSelfAttention,
    sa_layer_norm: LayerNorm,
    ffn: FeedForward,
    output_layer_norm: LayerNorm,
}

impl TransformerBlock {
    fn new(at: &Builder, config: &Config) -> Self {
        let norm = |name| LayerNorm::new(&at.at(name), config.dim, LAYER_NORM_EPS);
        let attention = DistilBertSelfAttention::new(&at.at("attention"), config);
        let sa_layer_norm = norm("sa_layer_norm");
        let ffn = FeedForward::new(&at.at("ffn"), config);
        Self { module: at.module(), attention, sa_layer_norm, ffn, output_layer_norm: norm("output_layer_norm") }
    }
}

impl EncoderLayer for TransformerBlock {
    type Call = Option<Tensor>;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, mask: &Option<Tensor>) -> Tensor {
        let _module = self.module.enter();
        let (mut attention_output, _weights) = self.attention.forward(hidden_states, mask.as_ref());
        attention_output = {
            let sum = &attention_output + hidden_states;
            self.sa_layer_norm.forward(&sum)
        };
        let ffn_output = self.ffn.forward(&attention_output);
        let sum = &ffn_output + &attention_output;
        self.output_layer_norm.forward(&sum)
    }
}

/// `DistilBertModel` with its `Transformer`.
struct DistilBertModel {
    module: Module,
    embeddings: Embeddings,
    transformer: Module,
    layer: Vec<Rc<TransformerBlock>>,
    options: RunOptions,
}

impl DistilBertModel {
    fn new(at: &Builder, config: &Config) -> Self {
        let transformer = at.at("transformer");
        let embeddings = Embeddings::new(&at.at("embeddings"), config);
        let layer = |layer: u64| Rc::new(TransformerBlock::new(&transformer.at("layer").element(layer), config));
        Self {
            module: at.module(),
            embeddings,
            transformer: transformer.module(),
            layer: (0..config.n_layers).map(layer).collect(),
            options: config.options.clone(),
        }
    }
}

impl Encoder for DistilBertModel {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let embeddings = self.embeddings.forward(call.input_ids);
        let mask = bidirectional_mask(&embeddings, call, &self.options);
        let _transformer = self.transformer.enter();
        run_layers(&self.layer, &embeddings, |_| mask.clone(), &self.options)
    }
}

struct DistilBertForMaskedLm {
    module: Module,
    activation: Module,
    distilbert: DistilBertModel,
    vocab_transform: Linear,
    vocab_layer_norm: LayerNorm,
    vocab_projector: Rc<Linear>,
    config: Config,
}

impl DistilBertForMaskedLm {
    fn new(at: &Builder, config: &Config) -> Self {
        let module = at.module();
        let activation = at.at("activation").module();
        let distilbert = DistilBertModel::new(&at.at("distilbert"), config);
        let vocab_transform = Linear::new(&at.at("vocab_transform"), config.dim, config.dim, true);
        let vocab_layer_norm = LayerNorm::new(&at.at("vocab_layer_norm"), config.dim, LAYER_NORM_EPS);
        let projector = at.at("vocab_projector");
        let vocab_projector = Rc::new(if config.tie_word_embeddings {
            Linear::tied_weight(&projector, &distilbert.embeddings.word_embeddings.weight)
        } else {
            Linear::head(&projector, config.dim, config.vocab_size, true)
        });
        let config = config.clone();
        Self { module, activation, distilbert, vocab_transform, vocab_layer_norm, vocab_projector, config }
    }
}

impl Model for DistilBertForMaskedLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.distilbert.forward(call);
        let mut prediction_logits = self.vocab_transform.forward(&hidden_states);
        prediction_logits = {
            let _activation = self.activation.enter();
            self.config.activation.forward(&prediction_logits)
        };
        prediction_logits = self.vocab_layer_norm.forward(&prediction_logits);
        prediction_logits = self.vocab_projector.forward(&prediction_logits);
        let loss = call.labels.map(|labels| masked_lm_loss(&prediction_logits, labels));
        ModelOutput { loss, logits: Some(prediction_logits), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.distilbert.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.vocab_projector)
    }
}

struct DistilBertForSequenceClassification {
    module: Module,
    distilbert: DistilBertModel,
    pre_classifier: Linear,
    classifier: Rc<Linear>,
    dropout: Module,
    config: Config,
}

impl DistilBertForSequenceClassification {
    fn new(at: &Builder, config: &Config) -> Self {
        let classifier = |at: &Builder| Linear::new(at, config.dim, config.num_labels, true);
        let pre_classifier = |at: &Builder| Linear::new(at, config.dim, config.dim, true);
        Self {
            module: at.module(),
            distilbert: DistilBertModel::new(&at.at("distilbert"), config),
            // Its name ends as the one that peft saves.
            pre_classifier: at.at("pre_classifier").saved(pre_classifier),
            classifier: Rc::new(at.at("classifier").saved(classifier)),
            dropout: at.at("dropout").module(),
            config: config.clone(),
        }
    }
}

impl Model for DistilBertForSequenceClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_state = self.distilbert.forward(call);
        let mut pooled_output = hidden_state.select(1, 0);
        pooled_output = self.pre_classifier.forward(&pooled_output);
        pooled_output = pooled_output.relu();
        pooled_output = self.config.dropped(&self.dropout, &pooled_output, self.config.seq_classif_dropout);
        classified(self.classifier.forward(&pooled_output), call)
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.distilbert.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier)
    }
}
