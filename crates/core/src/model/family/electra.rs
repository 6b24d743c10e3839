//! ELECTRA with its heads (transformers/models/electra/modeling_electra.py): BERT's encoder under embeddings of a width of their own.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, Head, ModelSpec};
use crate::model::nn::{Activation, LayerNorm, Linear, masked_lm_loss};
use crate::op::Gelu;
use crate::tensor::Tensor;

use super::bert::{BertEmbeddings, BertEncoder, Config, Defaults, Embeddings};
use super::encoder::{Encoder, ForTokenClassification};
use super::heads::classified;
use super::{Family, ForwardCall, Model, ModelOutput, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["electra"], build };

/// What `ElectraConfig` has where a config says nothing (transformers 5.17).
const DEFAULTS: Defaults =
    Defaults { hidden_size: 256, num_attention_heads: 4, intermediate_size: 1024, ..Defaults::BERT };
/// What its heads are activated by, whatever the config says.
const GELU: Activation = Activation::Gelu(Gelu::Exact);

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let electra = ElectraConfig::read(&model.config)?;
    let config = electra.config;
    let at = &at.deviating(config.initializer_range);
    Ok(match model.beside.head {
        // The others are refused before.
        Head::LanguageModel | Head::ImageClassification | Head::Base => {
            refuse_discriminator(&model.config)?;
            Box::new(ElectraForMaskedLm::new(at, electra, options))
        }
        Head::SequenceClassification => Box::new(ElectraForSequenceClassification::new(at, electra, options)),
        Head::TokenClassification => {
            let model = ElectraModel::new(&at.at("electra"), electra, options);
            Box::new(ForTokenClassification::new(at, model, config.hidden_size, config.classes, options))
        }
    })
}

/// `ElectraForPreTraining` tells replaced tokens from others, where BERT's class of that name predicts masked ones.
fn refuse_discriminator(fields: &Fields) -> Result<(), FieldError> {
    let classes = fields.texts("architectures")?.unwrap_or_default();
    if classes.first().is_some_and(|class| class.ends_with("ForPreTraining")) {
        let problem = "the loss of replaced tokens is not simulated; a class of rows or tokens is, and with an \
                       ElectraForMaskedLM that of masked tokens";
        return Err(FieldError::unsimulated("architectures", problem));
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct ElectraConfig {
    config: Config,
    embedding_size: u64,
}

impl ElectraConfig {
    fn read(fields: &Fields) -> Result<Self, FieldError> {
        Ok(Self { config: Config::read(fields, DEFAULTS)?, embedding_size: fields.size("embedding_size", 128)? })
    }
}

struct ElectraModel {
    module: Module,
    embeddings: BertEmbeddings,
    embeddings_project: Option<Linear>,
    encoder: BertEncoder,
}

impl ElectraModel {
    fn new(at: &Builder, electra: ElectraConfig, options: &RunOptions) -> Self {
        let ElectraConfig { config, embedding_size } = electra;
        let below = Config { hidden_size: embedding_size, ..config };
        let embeddings = BertEmbeddings::new(&at.at("embeddings"), below, options);
        let projects = embedding_size != config.hidden_size;
        let embeddings_project =
            projects.then(|| Linear::new(&at.at("embeddings_project"), embedding_size, config.hidden_size, true));
        Self { module: at.module(), embeddings, embeddings_project, encoder: BertEncoder::new(at, config, options) }
    }
}

impl Encoder for ElectraModel {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        let _module = self.module.enter();
        let mut embedding_output = self.embeddings.forward(call);
        if let Some(embeddings_project) = &self.embeddings_project {
            embedding_output = embeddings_project.forward(&embedding_output);
        }
        self.encoder.forward(&embedding_output, call)
    }
}

struct ElectraGeneratorPredictions {
    module: Module,
    activation: Module,
    layer_norm: LayerNorm,
    dense: Linear,
}

impl ElectraGeneratorPredictions {
    fn new(at: &Builder, electra: ElectraConfig) -> Self {
        let width = electra.embedding_size;
        Self {
            module: at.module(),
            activation: at.at("activation").module(),
            layer_norm: LayerNorm::new(&at.at("LayerNorm"), width, electra.config.layer_norm_eps),
            dense: Linear::new(&at.at("dense"), electra.config.hidden_size, width, true),
        }
    }

    fn forward(&self, generator_hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.dense.forward(generator_hidden_states);
        hidden_states = {
            let _activation = self.activation.enter();
            GELU.forward(&hidden_states)
        };
        self.layer_norm.forward(&hidden_states)
    }
}

struct ElectraForMaskedLm {
    module: Module,
    electra: ElectraModel,
    generator_predictions: ElectraGeneratorPredictions,
    generator_lm_head: Rc<Linear>,
}

impl ElectraForMaskedLm {
    fn new(at: &Builder, config: ElectraConfig, options: &RunOptions) -> Self {
        let electra = ElectraModel::new(&at.at("electra"), config, options);
        let generator_predictions = ElectraGeneratorPredictions::new(&at.at("generator_predictions"), config);
        let head = at.at("generator_lm_head");
        let generator_lm_head = Rc::new(match config.config.tie_word_embeddings {
            true => Linear::tied_weight(&head, &electra.embeddings.word_embeddings.weight),
            false => Linear::head(&head, config.embedding_size, config.config.vocab_size, true),
        });
        Self { module: at.module(), electra, generator_predictions, generator_lm_head }
    }
}

impl Model for ElectraForMaskedLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let generator_sequence_output = self.electra.forward(call);
        let mut prediction_scores = self.generator_predictions.forward(&generator_sequence_output);
        prediction_scores = self.generator_lm_head.forward(&prediction_scores);
        let loss = call.labels.map(|labels| masked_lm_loss(&prediction_scores, labels));
        ModelOutput { loss, logits: Some(prediction_scores), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.electra.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.generator_lm_head)
    }
}

struct ElectraClassificationHead {
    module: Module,
    dense: Linear,
    activation: Module,
    dropout: Module,
    out_proj: Rc<Linear>,
    probability: f64,
    options: RunOptions,
}

impl ElectraClassificationHead {
    fn new(at: &Builder, config: Config, options: &RunOptions) -> Self {
        let hidden = config.hidden_size;
        Self {
            module: at.module(),
            dense: Linear::new(&at.at("dense"), hidden, hidden, true),
            activation: at.at("activation").module(),
            dropout: at.at("dropout").module(),
            out_proj: Rc::new(Linear::new(&at.at("out_proj"), hidden, config.classes.num_labels, true)),
            probability: config.classes.dropout,
            options: options.clone(),
        }
    }

    fn forward(&self, features: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut x = features.select(1, 0);
        x = self.dropped(&x);
        x = self.dense.forward(&x);
        x = {
            let _activation = self.activation.enter();
            GELU.forward(&x)
        };
        x = self.dropped(&x);
        self.out_proj.forward(&x)
    }

    fn dropped(&self, x: &Tensor) -> Tensor {
        let _dropout = self.dropout.enter();
        x.dropout(self.probability, self.options.drops_out())
    }
}

struct ElectraForSequenceClassification {
    module: Module,
    electra: ElectraModel,
    classifier: ElectraClassificationHead,
}

impl ElectraForSequenceClassification {
    fn new(at: &Builder, config: ElectraConfig, options: &RunOptions) -> Self {
        let electra = ElectraModel::new(&at.at("electra"), config, options);
        let head = |at: &Builder| ElectraClassificationHead::new(at, config.config, options);
        Self { module: at.module(), electra, classifier: at.at("classifier").saved(head) }
    }
}

impl Model for ElectraForSequenceClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.electra.forward(call);
        classified(self.classifier.forward(&sequence_output), call)
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.electra.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier.out_proj)
    }
}
