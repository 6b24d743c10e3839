//! Decoders with a head for classes: `GenericForSequenceClassification` and `GenericForTokenClassification` (transformers 5.17,
//! modeling_layers.py), and the classes of GPT-2, GPT-NeoX and OPT, which do the same.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Head, ModelSpec};
use crate::model::family::{BuildLanguageModel, ForwardCall, Model, ModelOutput, RunOptions};
use crate::model::nn::{KvCache, Linear, masked_lm_loss};
use crate::model_type::{ModelKind, TokenHead};
use crate::op::{arange, full};
use crate::tensor::Tensor;

/// Builds the model with what stands on it; an encoder's family builds its heads itself.
pub(super) fn build_with_head(
    build: BuildLanguageModel,
    model: &ModelSpec,
    at: &Builder,
    options: &RunOptions,
) -> Result<Box<dyn Model>, BuildError> {
    if model.beside.head == Head::LanguageModel || model.facts().kind != ModelKind::Decoder {
        return build(model, at, options);
    }
    if model.beside.head == Head::Base {
        return build(model, &at.without_head(), options);
    }
    let module = at.module();
    let decoder = build(model, &at.without_head(), options)?;
    let width = decoder.output_embeddings().weight().size(1);
    Ok(match (model.beside.head, model.facts().class_heads.tokens) {
        (Head::TokenClassification, Some(head)) => {
            let classifier = TokenClassifier::new(at, width, (model, head), options)?;
            Box::new(ForTokenClassification { module, decoder, classifier })
        }
        _ => {
            let labels = model.config.num_labels()?;
            let score = at.at("score").saved(|at| Rc::new(Linear::head(at, width, labels, false)));
            let pads = model.facts().has_padding_token || model.config.get("pad_token_id").is_some();
            Box::new(ForSequenceClassification { module, decoder, score, pads })
        }
    })
}

/// `GenericForSequenceClassification`
struct ForSequenceClassification {
    module: Module,
    decoder: Box<dyn Model>,
    score: Rc<Linear>,
    /// Whether the config names a padding token.
    pads: bool,
}

impl ForSequenceClassification {
    /// `logits[torch.arange(batch_size), last_non_pad_token]`, and what lives as long as the forward pass.
    fn pool(&self, logits: &Tensor, input_ids: &Tensor) -> (Tensor, Vec<Tensor>) {
        let (context, rows) = (input_ids.context(), input_ids.size(0));
        // Of several rows transformers insists on a padding token: who trains has set one.
        if !self.pads && rows == 1 {
            let last = logits.select(1, logits.size(1) - 1);
            return (last.at_places(&[&arange(context, rows)]), Vec::new());
        }
        let non_pad_mask = {
            let is_other = input_ids.ne_number(0.0);
            is_other.map("_to_copy.default", DType::Int32)
        };
        let token_indices = full(context, "arange.default", &[input_ids.size(1)], DType::Int32);
        let last_non_pad_token = {
            let places = token_indices.binary("mul.Tensor", &non_pad_mask, DType::Int32);
            places.argmax_last()
        };
        let pooled_logits = logits.at_places(&[&arange(context, rows), &last_non_pad_token]);
        (pooled_logits, vec![non_pad_mask, token_indices, last_non_pad_token])
    }
}

impl Model for ForSequenceClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let hidden_states = self.decoder.hidden_states(call);
        let logits = self.score.forward(&hidden_states);
        let (pooled_logits, _places) = self.pool(&logits, call.input_ids);
        let loss = call.labels.map(|labels| masked_lm_loss(&pooled_logits, labels));
        ModelOutput { loss, logits: Some(pooled_logits), cache: call.cache.clone(), router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.decoder.hidden_states(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.score)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.decoder.new_cache()
    }
}

/// The dropout and the linear layer of a head for tokens.
struct TokenClassifier {
    dropout: Module,
    probability: f64,
    linear: Rc<Linear>,
    float_loss: bool,
    options: RunOptions,
}

impl TokenClassifier {
    fn new(
        at: &Builder,
        width: u64,
        (model, head): (&ModelSpec, TokenHead),
        options: &RunOptions,
    ) -> Result<Self, FieldError> {
        let labels = model.config.num_labels()?;
        let dropout = at.at("dropout").module();
        let linear = at.at(head.name).saved(|at| Rc::new(Linear::new(at, width, labels, true)));
        let probability = dropout_of(&model.config, head)?;
        Ok(Self { dropout, probability, linear, float_loss: head.float_loss, options: options.clone() })
    }

    fn forward(&self, states: &Tensor) -> Tensor {
        let _dropout = self.dropout.enter();
        states.dropout(self.probability, self.options.drops_out())
    }
}

/// The first of its keys that is not null.
fn dropout_of(config: &Fields, head: TokenHead) -> Result<f64, FieldError> {
    let key = head.dropout_keys.iter().find(|key| config.get(key).is_some());
    key.map_or(Ok(head.dropout), |key| config.probability(key, head.dropout))
}

/// `GenericForTokenClassification`
struct ForTokenClassification {
    module: Module,
    decoder: Box<dyn Model>,
    classifier: TokenClassifier,
}

impl Model for ForTokenClassification {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        // `outputs.last_hidden_state` lives beside what was dropped from.
        let last_hidden_state = self.decoder.hidden_states(call);
        let sequence_output = self.classifier.forward(&last_hidden_state);
        let logits = self.classifier.linear.forward(&sequence_output);
        let loss = call.labels.map(|labels| {
            let cast = if self.classifier.float_loss { logits.float() } else { logits.clone() };
            masked_lm_loss(&cast, labels)
        });
        ModelOutput { loss, logits: Some(logits), cache: None, router: None, more: Vec::new() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.decoder.hidden_states(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier.linear)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.decoder.new_cache()
    }
}
