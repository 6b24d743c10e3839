//! BERT with its masked-language-model head (transformers/models/bert/modeling_bert.py).

mod predictions;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{Attention, FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{
    Activation, AttentionConfig, AttentionOutput, Embedding, LayerNorm, Linear, MaskInputs, create_bidirectional_mask,
    masked_lm_loss, sdpa_attention_forward,
};
use crate::tensor::{Tensor, checkpoint};

use super::bounds::{bound_weights, check_divides};
use super::decoder::{initializer_range, padding_row};
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use predictions::BertPredictions;

pub(crate) const FAMILY: Family = Family { model_types: &["bert"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    Ok(Box::new(BertForMaskedLm::new(at, Config::read(&model.config)?, options)))
}

/// `BertConfig`
#[derive(Clone, Copy)]
struct Config {
    vocab_size: u64,
    hidden_size: u64,
    num_hidden_layers: u64,
    num_attention_heads: u64,
    intermediate_size: u64,
    max_position_embeddings: u64,
    type_vocab_size: u64,
    activation: Activation,
    hidden_dropout: f64,
    attention_dropout: f64,
    tie_word_embeddings: bool,
    layer_norm_eps: f64,
    pad_token_id: Option<u64>,
    /// The deviation that weights begin with.
    initializer_range: f64,
}

impl Config {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        if fields.flag("is_decoder", false)? {
            return Err(FieldError::unsimulated("is_decoder", "only the encoder is simulated"));
        }
        let vocab_size = fields.size("vocab_size", 30522)?;
        let config = Self {
            vocab_size,
            hidden_size: fields.size("hidden_size", 768)?,
            num_hidden_layers: fields.layers("num_hidden_layers", 12)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            intermediate_size: fields.size("intermediate_size", 3072)?,
            max_position_embeddings: fields.size("max_position_embeddings", 512)?,
            type_vocab_size: fields.size("type_vocab_size", 2)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", "gelu")?)?,
            hidden_dropout: fields.probability("hidden_dropout_prob", 0.1)?,
            attention_dropout: fields.probability("attention_probs_dropout_prob", 0.1)?,
            tie_word_embeddings: fields.flag("tie_word_embeddings", true)?,
            layer_norm_eps: fields.number("layer_norm_eps", 1e-12)?,
            pad_token_id: padding_row(fields, Some(0), vocab_size),
            initializer_range: initializer_range(fields)?,
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("vocab_size", [config.vocab_size, hidden], 2),
            ("max_position_embeddings", [config.max_position_embeddings, hidden], 1),
            ("type_vocab_size", [config.type_vocab_size, hidden], 1),
            ("intermediate_size", [config.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        Ok(config)
    }
}

struct BertEmbeddings {
    module: Module,
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    layer_norm: LayerNorm,
    dropout: Module,
    position_ids: Tensor,
    token_type_ids: Tensor,
    config: Config,
    options: RunOptions,
}

impl BertEmbeddings {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let (width, positions) = (config.hidden_size, config.max_position_embeddings);
        Self {
            module: at.module(),
            word_embeddings: Embedding::new(&at.at("word_embeddings"), config.vocab_size, width, config.pad_token_id),
            position_embeddings: Embedding::new(&at.at("position_embeddings"), positions, width, None),
            token_type_embeddings: Embedding::new(&at.at("token_type_embeddings"), config.type_vocab_size, width, None),
            layer_norm: LayerNorm::new(&at.at("LayerNorm"), width, config.layer_norm_eps),
            dropout: at.at("dropout").module(),
            position_ids: at.buffer(&[1, positions], DType::Int64, || (0..positions).map(|at| at as f64).collect()),
            token_type_ids: at.buffer(&[1, positions], DType::Int64, || vec![0.0; positions as usize]),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let (rows, tokens) = (input_ids.size(0), input_ids.size(1));
        let position_ids = self.position_ids.narrow(1, 0..tokens);
        // The block is Python's expression: what it makes on the way is freed when it is done.
        let token_type_ids = {
            let gathered = self.token_type_ids.gather(&position_ids);
            gathered.expand(&[rows, tokens])
        };
        let inputs_embeds = self.options.require_input_grads(self.word_embeddings.forward(input_ids));
        let token_type_embeddings = self.token_type_embeddings.forward(&token_type_ids);
        let mut embeddings = &inputs_embeds + &token_type_embeddings;
        let position_embeddings = self.position_embeddings.forward(&position_ids);
        embeddings = &embeddings + &position_embeddings;
        embeddings = self.layer_norm.forward(&embeddings);
        let _dropout = self.dropout.enter();
        embeddings.dropout(self.config.hidden_dropout, self.options.drops_out())
    }
}

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
        let (mut attn_output, attn_weights) = self.attend(&query_layer, &key_layer, &value_layer, mask);
        attn_output = attn_output.reshape(&[rows, tokens, self.config.hidden_size]).contiguous();
        (attn_output, attn_weights)
    }

    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> AttentionOutput {
        let dropout = self.options.active(self.config.attention_dropout);
        let scale = (query.size(-1) as f64).powf(-0.5);
        if self.options.attention == Attention::Eager {
            return eager_attention_forward([query, key, value], mask, dropout, scale);
        }
        let implementation = self.options.attention;
        let config = AttentionConfig { implementation, num_key_value_groups: 1, dropout, is_causal: false, scale };
        (sdpa_attention_forward(query, key, value, mask, config), None)
    }
}

fn eager_attention_forward(
    [query, key, value]: [&Tensor; 3],
    mask: Option<&Tensor>,
    dropout: f64,
    scale: f64,
) -> AttentionOutput {
    let mut attn_weights = query.matmul(&key.transpose(2, 3)).mul_scalar(scale);
    if let Some(mask) = mask {
        attn_weights = &attn_weights + mask;
    }
    attn_weights = attn_weights.softmax(None);
    attn_weights = attn_weights.dropout(dropout, true);
    let attn_output = attn_weights.matmul(value);
    (attn_output.transpose(1, 2).contiguous(), Some(attn_weights))
}

/// `BertSelfOutput` and `BertOutput`: back to the model's width, dropout, residual, norm.
struct BertOutput {
    module: Module,
    dense: Linear,
    layer_norm: LayerNorm,
    dropout: Module,
    config: Config,
    options: RunOptions,
}

impl BertOutput {
    fn new(at: &Builder, inputs: u64, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), inputs, config.hidden_size, true),
            layer_norm: LayerNorm::new(&at.at("LayerNorm"), config.hidden_size, config.layer_norm_eps),
            dropout: at.at("dropout").module(),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, input_tensor: &Tensor) -> Tensor {
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

struct BertIntermediate {
    module: Module,
    dense: Linear,
    act: Module,
    activation: Activation,
}

impl BertIntermediate {
    fn new(at: &Builder, config: Config) -> Self {
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), config.hidden_size, config.intermediate_size, true),
            act: at.at("intermediate_act_fn").module(),
            activation: config.activation,
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
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

    fn forward(&self, hidden_states: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let _module = self.module.enter();
        let (attention_output, _weights) = self.attention.forward(hidden_states, mask);
        let intermediate_output = self.intermediate.forward(&attention_output);
        self.output.forward(&intermediate_output, &attention_output)
    }
}

struct BertModel {
    module: Module,
    embeddings: BertEmbeddings,
    encoder: Module,
    layer: Vec<Rc<BertLayer>>,
    options: RunOptions,
}

impl BertModel {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let encoder = at.at("encoder");
        let layer = |layer: u64| Rc::new(BertLayer::new(&encoder.at("layer").element(layer), config, options));
        Self {
            module: at.module(),
            embeddings: BertEmbeddings::new(&at.at("embeddings"), config, options),
            encoder: encoder.module(),
            layer: (0..config.num_hidden_layers).map(layer).collect(),
            options: options.clone(),
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let embedding_output = self.embeddings.forward(call.input_ids);
        let mask = create_bidirectional_mask(MaskInputs {
            attention: self.options.attention,
            file: ModelingFile::Later,
            inputs_embeds: &embedding_output,
            attention_mask: call.attention_mask,
            cache: None,
            position_ids: None,
        });
        let _encoder = self.encoder.enter();
        let mut hidden_states = embedding_output.clone();
        for layer in &self.layer {
            hidden_states = if self.options.checkpoints_layers() {
                let (layer, mask) = (Rc::clone(layer), mask.clone());
                checkpoint(&hidden_states, move |hidden_states| {
                    layer.module.call(hidden_states, |hidden_states| layer.forward(hidden_states, mask.as_ref()))
                })
            } else {
                layer.module.call(&hidden_states, |hidden_states| layer.forward(hidden_states, mask.as_ref()))
            };
        }
        hidden_states
    }
}

struct BertForMaskedLm {
    module: Module,
    bert: BertModel,
    cls: Module,
    predictions: BertPredictions,
}

impl BertForMaskedLm {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let at = &at.deviating(config.initializer_range);
        let bert = BertModel::new(&at.at("bert"), config, options);
        let cls = at.at("cls");
        let predictions = BertPredictions::new(&cls.at("predictions"), config, &bert.embeddings.word_embeddings);
        Self { module: at.module(), bert, cls: cls.module(), predictions }
    }
}

impl Model for BertForMaskedLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.bert.forward(call);
        let prediction_scores = {
            let _cls = self.cls.enter();
            self.predictions.forward(&sequence_output)
        };
        let loss = call.labels.map(|labels| masked_lm_loss(&prediction_scores, labels));
        ModelOutput { loss, logits: Some(prediction_scores), cache: None, router: None }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.bert.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.predictions.decoder)
    }
}
