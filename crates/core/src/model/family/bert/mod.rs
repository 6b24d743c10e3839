//! BERT with its heads for masked tokens, sequences and tokens (transformers/models/bert/modeling_bert.py).

mod config;
mod encoder;
mod predictions;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{Head, ModelSpec};
use crate::model::nn::{Embedding, LayerNorm, Linear, masked_lm_loss};
use crate::tensor::Tensor;

use super::encoder::{BaseModel, Encoder, ForTokenClassification, Pooler};
use super::heads::DroppedClassifier;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};
pub(crate) use config::{Config, Defaults};
pub(crate) use encoder::{BertEncoder, BertIntermediate, BertOutput};
pub(crate) use predictions::BertPredictions;

pub(crate) const FAMILY: Family = Family { model_types: &["bert"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, Defaults::BERT)?;
    let at = &at.deviating(config.initializer_range);
    Ok(match model.beside.head {
        // Images are refused before.
        Head::LanguageModel | Head::ImageClassification => Box::new(BertForMaskedLm::new(at, config, options)),
        Head::SequenceClassification => Box::new(BertForSequenceClassification::new(at, config, options)),
        Head::Base => {
            let bert = BertModel::<BertEmbeddings>::new(at, config, options);
            let pooler = BertPooler::new(&at.at("pooler"), config);
            BaseModel::boxed(at, bert, |bert| &bert.embeddings.word_embeddings, Some(Box::new(pooler)))
        }
        Head::TokenClassification => {
            let bert = BertModel::<BertEmbeddings>::new(&at.at("bert"), config, options);
            Box::new(ForTokenClassification::new(at, bert, config.hidden_size, config.classes, options))
        }
    })
}

pub(crate) struct BertEmbeddings {
    module: Module,
    pub word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    layer_norm: LayerNorm,
    dropout: Module,
    position_ids: Tensor,
    token_type_ids: Tensor,
    config: Config,
    options: RunOptions,
}

impl Embeddings for BertEmbeddings {
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

    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let input_ids = call.input_ids;
        let (rows, tokens) = (input_ids.size(0), input_ids.size(1));
        let position_ids = self.position_ids.narrow(1, 0..tokens);
        // The block is Python's expression: what it makes on the way is freed when it is done.
        let token_type_ids = match call.token_type_ids {
            Some(token_type_ids) => token_type_ids.clone(),
            None => {
                let gathered = self.token_type_ids.gather(&position_ids);
                gathered.expand(&[rows, tokens])
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

/// The first token's state, for what is said of the whole row.
pub(crate) struct BertPooler {
    module: Module,
    dense: Linear,
    activation: Module,
}

impl BertPooler {
    pub(crate) fn new(at: &Builder, config: Config) -> Self {
        let dense = Linear::new(&at.at("dense"), config.hidden_size, config.hidden_size, true);
        Self { module: at.module(), dense, activation: at.at("activation").module() }
    }
}

impl Pooler for BertPooler {
    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let first_token_tensor = hidden_states.select(1, 0);
        let pooled_output = self.dense.forward(&first_token_tensor);
        let _activation = self.activation.enter();
        pooled_output.tanh()
    }
}

/// What stands below the layers: BERT's and RoBERTa's differ in their positions.
pub(crate) trait Embeddings {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self;

    fn forward(&self, call: &ForwardCall) -> Tensor;
}

/// `BertModel` and `RobertaModel`, without a pooler.
pub(crate) struct BertModel<E> {
    module: Module,
    pub embeddings: E,
    encoder: BertEncoder,
}

impl<E: Embeddings> BertModel<E> {
    pub(crate) fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            embeddings: E::new(&at.at("embeddings"), config, options),
            encoder: BertEncoder::new(at, config, options),
        }
    }
}

impl<E: Embeddings> Encoder for BertModel<E> {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let embedding_output = self.embeddings.forward(call);
        self.encoder.forward(&embedding_output, call)
    }

    fn forward_pooled(&self, call: &ForwardCall, pooler: &dyn Pooler) -> [Tensor; 2] {
        let _module = self.module.enter();
        let embedding_output = self.embeddings.forward(call);
        let sequence_output = self.encoder.forward(&embedding_output, call);
        let pooled_output = pooler.forward(&sequence_output);
        [sequence_output, pooled_output]
    }
}

struct BertForMaskedLm {
    module: Module,
    bert: BertModel<BertEmbeddings>,
    cls: Module,
    predictions: BertPredictions,
}

impl BertForMaskedLm {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let bert = BertModel::<BertEmbeddings>::new(&at.at("bert"), config, options);
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
        ModelOutput { loss, logits: Some(prediction_scores), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.bert.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.predictions.decoder)
    }
}

struct BertForSequenceClassification {
    module: Module,
    bert: BertModel<BertEmbeddings>,
    pooler: BertPooler,
    classifier: DroppedClassifier,
}

impl BertForSequenceClassification {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let model = at.at("bert");
        Self {
            module: at.module(),
            bert: BertModel::new(&model, config, options),
            pooler: BertPooler::new(&model.at("pooler"), config),
            classifier: DroppedClassifier::new(at, config.hidden_size, config.classes, options),
        }
    }
}

impl Model for BertForSequenceClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.bert.forward(call);
        let pooled_output = self.pooler.forward(&sequence_output);
        self.classifier.classify(&pooled_output, call)
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.bert.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.classifier.linear()
    }
}
