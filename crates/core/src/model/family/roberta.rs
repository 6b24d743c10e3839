//! RoBERTa and XLM-RoBERTa with their heads (transformers/models/roberta/modeling_roberta.py, models/xlm_roberta): BERT's
//! encoder under embeddings and heads of its own.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Head, ModelSpec};
use crate::model::nn::{Activation, Embedding, LayerNorm, Linear, masked_lm_loss};
use crate::op::Gelu;
use crate::tensor::Tensor;

use super::bert::{BertModel, BertPooler, Config, Defaults, Embeddings};
use super::encoder::{BaseModel, Encoder, ForTokenClassification};
use super::heads::classified;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["roberta", "xlm-roberta"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    // XLM-RoBERTa's class has BERT's vocabulary for its default.
    let vocab_size = if model.model_type == FAMILY.model_types[0] { 50265 } else { 30522 };
    let defaults = Defaults { vocab_size, pad_token_id: 1, ..Defaults::BERT };
    let config = Config::read(&model.config, defaults)?;
    if config.pad_token_id.is_none() {
        return Err(FieldError::new("pad_token_id", "positions are counted from it, so it must be a token").into());
    }
    let at = &at.deviating(config.initializer_range);
    Ok(match model.beside.head {
        // Images are refused before.
        Head::LanguageModel | Head::ImageClassification => Box::new(RobertaForMaskedLm::new(at, config, options)),
        Head::SequenceClassification => Box::new(RobertaForSequenceClassification::new(at, config, options)),
        Head::Base => {
            let roberta = RobertaModel::new(at, config, options);
            let pooler = BertPooler::new(&at.at("pooler"), config);
            BaseModel::boxed(at, roberta, |roberta| &roberta.embeddings.word_embeddings, Some(Box::new(pooler)))
        }
        Head::TokenClassification => {
            let roberta = RobertaModel::new(&at.at("roberta"), config, options);
            Box::new(ForTokenClassification::new(at, roberta, config.hidden_size, config.classes, options))
        }
    })
}

struct RobertaEmbeddings {
    module: Module,
    word_embeddings: Embedding,
    token_type_embeddings: Embedding,
    layer_norm: LayerNorm,
    dropout: Module,
    position_embeddings: Embedding,
    /// Nothing reads it.
    _position_ids: Tensor,
    token_type_ids: Tensor,
    config: Config,
    options: RunOptions,
}

impl Embeddings for RobertaEmbeddings {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let (width, positions) = (config.hidden_size, config.max_position_embeddings);
        let module = at.module();
        let word_embeddings = Embedding::new(&at.at("word_embeddings"), config.vocab_size, width, config.pad_token_id);
        let token_type_embeddings =
            Embedding::new(&at.at("token_type_embeddings"), config.type_vocab_size, width, None);
        let layer_norm = LayerNorm::new(&at.at("LayerNorm"), width, config.layer_norm_eps);
        let position_embeddings = Embedding::new(&at.at("position_embeddings"), positions, width, config.pad_token_id);
        Self {
            module,
            word_embeddings,
            token_type_embeddings,
            layer_norm,
            dropout: at.at("dropout").module(),
            position_embeddings,
            _position_ids: at.buffer(&[1, positions], DType::Int64, || (0..positions).map(|at| at as f64).collect()),
            token_type_ids: at.buffer(&[1, positions], DType::Int64, || vec![0.0; positions as usize]),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let input_ids = call.input_ids;
        let (rows, tokens) = (input_ids.size(0), input_ids.size(1));
        let position_ids = create_position_ids_from_input_ids(input_ids, self.config.pad_token_id.unwrap_or_default());
        let token_type_ids = match call.token_type_ids {
            Some(token_type_ids) => token_type_ids.clone(),
            None => {
                let buffered_token_type_ids = self.token_type_ids.expand(&[rows, self.config.max_position_embeddings]);
                buffered_token_type_ids.gather(&position_ids).expand(&[rows, tokens])
            }
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

/// Numbers of the tokens that are no padding, from the one behind the padding's on.
pub(crate) fn create_position_ids_from_input_ids(input_ids: &Tensor, padding_idx: u64) -> Tensor {
    let mask = input_ids.ne_number(padding_idx as f64).to(DType::Int32);
    let incremental_indices = {
        let sum = mask.cumsum().to(DType::Int32);
        let counted = sum.add_int(0);
        drop(sum);
        &counted * &mask
    };
    incremental_indices.to(DType::Int64).add_int(padding_idx)
}

type RobertaModel = BertModel<RobertaEmbeddings>;

struct RobertaLmHead {
    module: Module,
    dense: Linear,
    layer_norm: LayerNorm,
    decoder: Rc<Linear>,
    /// The head's own bias where the decoder does not share it: nothing reads it.
    _unused_bias: Option<Tensor>,
}

impl RobertaLmHead {
    fn new(at: &Builder, config: Config, word_embeddings: &Embedding) -> Self {
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        // `parameters()` lists the head's own bias before its children, which `to` moves first.
        let bias_slot = at.next_slot();
        let module = at.module();
        let dense = Linear::new(&at.at("dense"), hidden, hidden, true);
        let layer_norm = LayerNorm::new(&at.at("layer_norm"), hidden, config.layer_norm_eps);
        let decoder_at = at.at("decoder");
        let (decoder, _unused_bias) = if config.tie_word_embeddings {
            let bias = decoder_at.called_as(at).parameter_listed_at(bias_slot, "bias", &[vocabulary], Init::Zeros);
            (Linear::tied(&decoder_at, &word_embeddings.weight, Some(&bias)), None)
        } else {
            let decoder = Linear::head(&decoder_at, hidden, vocabulary, true);
            (decoder, Some(at.parameter_listed_at(bias_slot, "bias", &[vocabulary], Init::Zeros)))
        };
        Self { module, dense, layer_norm, decoder: Rc::new(decoder), _unused_bias }
    }

    fn forward(&self, features: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut x = self.dense.forward(features);
        x = Activation::Gelu(Gelu::Exact).forward(&x);
        x = self.layer_norm.forward(&x);
        self.decoder.forward(&x)
    }
}

struct RobertaForMaskedLm {
    module: Module,
    roberta: RobertaModel,
    lm_head: RobertaLmHead,
}

impl RobertaForMaskedLm {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let roberta = RobertaModel::new(&at.at("roberta"), config, options);
        let lm_head = RobertaLmHead::new(&at.at("lm_head"), config, &roberta.embeddings.word_embeddings);
        Self { module: at.module(), roberta, lm_head }
    }
}

impl Model for RobertaForMaskedLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.roberta.forward(call);
        let prediction_scores = self.lm_head.forward(&sequence_output);
        let loss = call.labels.map(|labels| masked_lm_loss(&prediction_scores, labels));
        ModelOutput { loss, logits: Some(prediction_scores), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.roberta.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.lm_head.decoder)
    }
}

struct RobertaClassificationHead {
    module: Module,
    dense: Linear,
    dropout: Module,
    out_proj: Rc<Linear>,
    config: Config,
    options: RunOptions,
}

impl RobertaClassificationHead {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let hidden = config.hidden_size;
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), hidden, hidden, true),
            dropout: at.at("dropout").module(),
            out_proj: Rc::new(Linear::new(&at.at("out_proj"), hidden, config.classes.num_labels, true)),
            config,
            options: options.clone(),
        }
    }

    fn forward(&self, features: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut x = features.select(1, 0);
        x = self.dropped(&x);
        x = self.dense.forward(&x);
        x = x.tanh();
        x = self.dropped(&x);
        self.out_proj.forward(&x)
    }

    fn dropped(&self, x: &Tensor) -> Tensor {
        let _dropout = self.dropout.enter();
        x.dropout(self.config.classes.dropout, self.options.drops_out())
    }
}

struct RobertaForSequenceClassification {
    module: Module,
    roberta: RobertaModel,
    classifier: RobertaClassificationHead,
}

impl RobertaForSequenceClassification {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let roberta = RobertaModel::new(&at.at("roberta"), config, options);
        let head = |at: &Builder| RobertaClassificationHead::new(at, config, options);
        Self { module: at.module(), roberta, classifier: at.at("classifier").saved(head) }
    }
}

impl Model for RobertaForSequenceClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.roberta.forward(call);
        classified(self.classifier.forward(&sequence_output), call)
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.roberta.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier.out_proj)
    }
}
