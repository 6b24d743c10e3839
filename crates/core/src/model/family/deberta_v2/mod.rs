//! DeBERTa-v2 and v3 with their heads (transformers/models/deberta_v2/modeling_deberta_v2.py).

mod attention;
mod config;
mod encoder;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::job::{Head, ModelSpec};
use crate::model::nn::{Linear, fixed_cross_entropy, masked_lm_loss};
use crate::tensor::Tensor;

use super::bert::BertPredictions;
use super::encoder::{Encoder, ForTokenClassification};
use super::heads::classified;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use config::Config;
use encoder::DebertaV2Model;

pub(crate) const FAMILY: Family = Family { model_types: &["deberta-v2"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Config::read(&model.config, options)?;
    let at = &at.deviating(config.bert.initializer_range);
    Ok(match model.beside.head {
        // The others are refused before.
        Head::LanguageModel | Head::ImageClassification | Head::Base => {
            Box::new(DebertaV2ForMaskedLm::new(at, &config))
        }
        Head::SequenceClassification => {
            let finds_labels = model.config.get("problem_type").is_none();
            Box::new(DebertaV2ForSequenceClassification::new(at, &config, finds_labels))
        }
        Head::TokenClassification => {
            let deberta = DebertaV2Model::new(&at.at("deberta"), &config);
            Box::new(ForTokenClassification::new(at, deberta, config.bert.hidden_size, config.bert.classes, options))
        }
    })
}

struct DebertaV2ForMaskedLm {
    module: Module,
    deberta: DebertaV2Model,
    cls: Module,
    predictions: BertPredictions,
}

impl DebertaV2ForMaskedLm {
    fn new(at: &Builder, config: &Config) -> Self {
        let deberta = DebertaV2Model::new(&at.at("deberta"), config);
        let cls = at.at("cls");
        let predictions = BertPredictions::new(&cls.at("predictions"), config.bert, deberta.word_embeddings());
        Self { module: at.module(), deberta, cls: cls.module(), predictions }
    }
}

impl Model for DebertaV2ForMaskedLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.deberta.forward(call);
        let prediction_scores = {
            let _cls = self.cls.enter();
            self.predictions.forward(&sequence_output)
        };
        let loss = call.labels.map(|labels| masked_lm_loss(&prediction_scores, labels));
        ModelOutput { loss, logits: Some(prediction_scores), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.deberta.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.predictions.decoder)
    }
}

struct ContextPooler {
    module: Module,
    dense: Linear,
    dropout: Module,
    config: Config,
}

impl ContextPooler {
    fn new(at: &Builder, config: &Config) -> Self {
        let hidden = config.bert.hidden_size;
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), hidden, hidden, true),
            dropout: at.at("dropout").module(),
            config: config.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut context_token = hidden_states.select(1, 0);
        context_token = self.config.dropped(&self.dropout, &context_token, self.config.pooler_dropout);
        let pooled_output = self.dense.forward(&context_token);
        self.config.pooler_activation.forward(&pooled_output)
    }
}

struct DebertaV2ForSequenceClassification {
    module: Module,
    deberta: DebertaV2Model,
    pooler: ContextPooler,
    classifier: Rc<Linear>,
    dropout: Module,
    config: Config,
    /// Whether rows without a label are left out of the loss, as where the config says no `problem_type`.
    finds_labels: bool,
}

impl DebertaV2ForSequenceClassification {
    fn new(at: &Builder, config: &Config, finds_labels: bool) -> Self {
        let (hidden, labels) = (config.bert.hidden_size, config.bert.classes.num_labels);
        Self {
            module: at.module(),
            deberta: DebertaV2Model::new(&at.at("deberta"), config),
            pooler: ContextPooler::new(&at.at("pooler"), config),
            classifier: Rc::new(at.at("classifier").saved(|at| Linear::new(at, hidden, labels, true))),
            dropout: at.at("dropout").module(),
            config: config.clone(),
            finds_labels,
        }
    }
}

impl Model for DebertaV2ForSequenceClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let encoder_layer = self.deberta.forward(call);
        let mut pooled_output = self.pooler.forward(&encoder_layer);
        pooled_output = self.config.dropped(&self.dropout, &pooled_output, self.config.cls_dropout);
        let logits = self.classifier.forward(&pooled_output);
        let Some(labels) = call.labels.filter(|_| self.finds_labels) else { return classified(logits, call) };
        let rows = labels.numel();
        let label_index = {
            let has_label = labels.ge_number(0.0);
            has_label.places(rows)
        };
        let labeled_logits = logits.gather_rows(&label_index);
        let labels = labels.gather_rows(&label_index.view(&[rows]));
        let float = labeled_logits.float();
        let loss = fixed_cross_entropy(&float, &labels, None);
        ModelOutput { loss: Some(loss), logits: Some(logits), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.deberta.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier)
    }
}
