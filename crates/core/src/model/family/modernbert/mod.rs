//! ModernBERT with its heads (transformers/models/modernbert/modeling_modernbert.py): every third layer sees all tokens, the
//! others a window.

mod config;
mod encoder;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{Head, ModelSpec};
use crate::model::nn::{LayerNorm, Linear, float_masked_lm_loss};
use crate::op::ones;
use crate::tensor::Tensor;

use super::encoder::{BaseModel, Encoder};
use super::heads::classified;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};
use config::Config;
use encoder::ModernBertModel;

pub(crate) const FAMILY: Family = Family { model_types: &["modernbert"], build };

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = Rc::new(Config::read(&model.config, options)?);
    let at = &at.deviating(config.initializer_range);
    Ok(match model.beside.head {
        Head::LanguageModel => Box::new(ModernBertForMaskedLm::new(at, &config)),
        Head::Base => {
            let model = ModernBertModel::new(at, &config);
            BaseModel::boxed(at, model, |model| &model.embeddings.tok_embeddings, None)
        }
        head => Box::new(ModernBertForClassification::new(at, head, &config)),
    })
}

struct ModernBertPredictionHead {
    module: Module,
    dense: Linear,
    act: Module,
    norm: LayerNorm,
    config: Rc<Config>,
}

impl ModernBertPredictionHead {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let hidden = config.hidden_size;
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), hidden, hidden, config.classifier_bias),
            act: at.at("act").module(),
            norm: config.norm(&at.at("norm")),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let activated = {
            let projected = self.dense.forward(hidden_states);
            let _act = self.act.enter();
            self.config.classifier_activation.forward(&projected)
        };
        self.norm.forward(&activated)
    }
}

struct ModernBertForMaskedLm {
    module: Module,
    model: ModernBertModel,
    head: ModernBertPredictionHead,
    decoder: Rc<Linear>,
}

impl ModernBertForMaskedLm {
    fn new(at: &Builder, config: &Rc<Config>) -> Self {
        let module = at.module();
        let model = ModernBertModel::new(&at.at("model"), config);
        let head = ModernBertPredictionHead::new(&at.at("head"), config);
        let (decoder, embedding) = (at.at("decoder"), &model.embeddings.tok_embeddings.weight);
        let decoder = Rc::new(match (config.tie_word_embeddings, config.decoder_bias) {
            (true, true) => Linear::tied_weight(&decoder, embedding),
            (true, false) => Linear::tied(&decoder, embedding, None),
            (false, bias) => Linear::head(&decoder, config.hidden_size, config.vocab_size, bias),
        });
        Self { module, model, head, decoder }
    }
}

impl Model for ModernBertForMaskedLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let last_hidden_state = self.model.forward(call);
        let logits = {
            let predicted = self.head.forward(&last_hidden_state);
            self.decoder.forward(&predicted)
        };
        let loss = call.labels.map(|labels| float_masked_lm_loss(&logits, labels, call.num_items_in_batch));
        ModelOutput { loss, logits: Some(logits), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.model.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.decoder)
    }
}

/// `ModernBertForSequenceClassification` and `ModernBertForTokenClassification`
struct ModernBertForClassification {
    module: Module,
    model: ModernBertModel,
    head: ModernBertPredictionHead,
    drop: Module,
    classifier: Rc<Linear>,
    pools: bool,
}

impl ModernBertForClassification {
    fn new(at: &Builder, head: Head, config: &Rc<Config>) -> Self {
        let module = at.module();
        let model = ModernBertModel::new(&at.at("model"), config);
        let prediction = ModernBertPredictionHead::new(&at.at("head"), config);
        let drop = at.at("drop").module();
        let linear = |at: &Builder| Linear::new(at, config.hidden_size, config.num_labels, true);
        let classifier = Rc::new(at.at("classifier").saved(linear));
        Self { module, model, head: prediction, drop, classifier, pools: head == Head::SequenceClassification }
    }

    /// What is said of a row is said of its first token, or of the mean of all.
    fn pool(&self, last_hidden_state: &Tensor, call: &ForwardCall) -> Tensor {
        if !self.model.config.pools_mean {
            return last_hidden_state.select(1, 0);
        }
        let (context, [rows, tokens]) =
            (last_hidden_state.context(), [last_hidden_state.size(0), last_hidden_state.size(1)]);
        let attention_mask = match call.attention_mask {
            Some(attention_mask) => attention_mask.clone(),
            None => ones(context, &[rows, tokens], DType::Bool),
        };
        let sum = {
            let seen = last_hidden_state * &attention_mask.unsqueeze(2);
            seen.sum_middle()
        };
        sum.div_by(&attention_mask.count_last().unsqueeze(1))
    }
}

impl Model for ModernBertForClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        // `outputs` holds it to the end.
        let outputs = self.model.forward(call);
        let mut states = if self.pools { self.pool(&outputs, call) } else { outputs.clone() };
        states = self.head.forward(&states);
        let config = &self.model.config;
        states = config.dropped(&self.drop, &states, config.classifier_dropout);
        classified(self.classifier.forward(&states), call)
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.model.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier)
    }
}
