//! Heads of encoders: what they say of a row or of each of its tokens, and the loss of it.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::job::{FieldError, Fields};
use crate::model::nn::{Linear, masked_lm_loss};
use crate::tensor::Tensor;

use super::{ForwardCall, ModelOutput, RunOptions};

/// What a config says of the classes.
#[derive(Clone, Copy)]
pub(crate) struct Classes {
    /// Logits of a row or token.
    pub num_labels: u64,
    /// The probability of the head's dropout.
    pub dropout: f64,
}

impl Classes {
    /// `config.num_labels`, and the dropout of the key `dropout_key`, which is the encoder's where it is null.
    pub(crate) fn read(fields: &Fields, dropout_key: &str, of_encoder: f64) -> Result<Self, FieldError> {
        let dropout = match fields.get(dropout_key) {
            Some(_) => fields.probability(dropout_key, of_encoder)?,
            None => of_encoder,
        };
        Ok(Self { num_labels: fields.num_labels()?, dropout })
    }
}

/// `classifier(dropout(states))`, as most heads are.
pub(crate) struct DroppedClassifier {
    dropout: Module,
    classifier: Rc<Linear>,
    probability: f64,
    options: RunOptions,
}

impl DroppedClassifier {
    pub(crate) fn new(at: &Builder, width: u64, classes: Classes, options: &RunOptions) -> Self {
        let classifier = at.at("classifier").saved(|at| Linear::new(at, width, classes.num_labels, true));
        Self {
            dropout: at.at("dropout").module(),
            classifier: Rc::new(classifier),
            probability: classes.dropout,
            options: options.clone(),
        }
    }

    /// What was dropped from lives until the loss is there, as Python's variable of it does.
    pub(crate) fn classify(&self, states: &Tensor, call: &ForwardCall) -> ModelOutput {
        let dropped = {
            let _dropout = self.dropout.enter();
            states.dropout(self.probability, self.options.drops_out())
        };
        classified(self.classifier.forward(&dropped), call)
    }

    pub(crate) fn linear(&self) -> Rc<Linear> {
        Rc::clone(&self.classifier)
    }
}

/// The logits with `CrossEntropyLoss` over them, where there are labels.
pub(crate) fn classified(logits: Tensor, call: &ForwardCall) -> ModelOutput {
    let loss = call.labels.map(|labels| masked_lm_loss(&logits, labels));
    ModelOutput { loss, logits: Some(logits), cache: None, router: None, more: Vec::new() }
}
