//! What encoders share: their attention, its mask, the loop over layers, and the head for classes of tokens.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::{Attention, ModelingFile};
use crate::model::nn::{
    AttentionConfig, AttentionOutput, Embedding, Linear, MaskInputs, create_bidirectional_mask,
    create_bidirectional_sliding_window_mask, sdpa_attention_forward,
};
use crate::tensor::{Tensor, checkpoint};

use super::heads::{Classes, DroppedClassifier};
use super::{ForwardCall, Model, ModelOutput, RunOptions};

/// `ALL_ATTENTION_FUNCTIONS` of an encoder's heads; `softmax` is the dtype that its eager form asks for.
pub(crate) fn attend(
    states: [&Tensor; 3],
    mask: Option<&Tensor>,
    dropout: (f64, Option<DType>),
    options: &RunOptions,
) -> AttentionOutput {
    attend_with(states, (mask, false), dropout, options)
}

/// The same of heads that may see what stands before them alone.
pub(crate) fn attend_with(
    [query, key, value]: [&Tensor; 3],
    (mask, is_causal): (Option<&Tensor>, bool),
    (dropout, softmax): (f64, Option<DType>),
    options: &RunOptions,
) -> AttentionOutput {
    let dropout = options.active(dropout);
    let scale = (query.size(-1) as f64).powf(-0.5);
    if options.attention == Attention::Eager {
        return eager_attention_forward([query, key, value], mask, (dropout, softmax), scale);
    }
    let config =
        AttentionConfig { implementation: options.attention, num_key_value_groups: 1, dropout, is_causal, scale };
    (sdpa_attention_forward(query, key, value, mask, config), None)
}

/// The mask of all layers.
pub(crate) fn bidirectional_mask(embeddings: &Tensor, call: &ForwardCall, options: &RunOptions) -> Option<Tensor> {
    create_bidirectional_mask(mask_inputs(embeddings, call, options))
}

/// The mask of layers that see a window.
pub(crate) fn bidirectional_window_mask(
    embeddings: &Tensor,
    call: &ForwardCall,
    window: u64,
    options: &RunOptions,
) -> Option<Tensor> {
    create_bidirectional_sliding_window_mask(mask_inputs(embeddings, call, options), window)
}

fn mask_inputs<'a>(embeddings: &'a Tensor, call: &'a ForwardCall, options: &RunOptions) -> MaskInputs<'a> {
    MaskInputs {
        attention: options.attention,
        file: ModelingFile::Later,
        inputs_embeds: embeddings,
        attention_mask: call.attention_mask,
        cache: None,
        position_ids: None,
    }
}

fn eager_attention_forward(
    [query, key, value]: [&Tensor; 3],
    mask: Option<&Tensor>,
    (dropout, softmax): (f64, Option<DType>),
    scale: f64,
) -> AttentionOutput {
    let mut attn_weights = query.matmul(&key.transpose(2, 3)).mul_scalar(scale);
    if let Some(mask) = mask {
        attn_weights = &attn_weights + mask;
    }
    attn_weights = match softmax {
        Some(dtype) => attn_weights.softmax(Some(dtype)).to(query.dtype()),
        None => attn_weights.softmax(None),
    };
    attn_weights = attn_weights.dropout(dropout, true);
    let attn_output = attn_weights.matmul(value);
    (attn_output.transpose(1, 2).contiguous(), Some(attn_weights))
}

/// A layer that hands on states of the same width.
pub(crate) trait EncoderLayer: 'static {
    /// What it is given beside the states.
    type Call: 'static;

    fn module(&self) -> &Module;

    fn forward(&self, hidden_states: &Tensor, call: &Self::Call) -> Tensor;
}

/// The states after all layers, each checkpointed where the run says so.
pub(crate) fn run_layers<L: EncoderLayer>(
    layers: &[Rc<L>],
    embeddings: &Tensor,
    call_of: impl Fn(&L) -> L::Call,
    options: &RunOptions,
) -> Tensor {
    let mut hidden_states = embeddings.clone();
    for layer in layers {
        let call = call_of(layer);
        hidden_states = if options.checkpoints_layers() {
            let layer = Rc::clone(layer);
            checkpoint(&hidden_states, move |hidden_states| {
                layer.module().call(hidden_states, |hidden_states| layer.forward(hidden_states, &call))
            })
        } else {
            layer.module().call(&hidden_states, |hidden_states| layer.forward(hidden_states, &call))
        };
    }
    hidden_states
}

/// A model without its head: a state for each token.
pub(crate) trait Encoder {
    fn forward(&self, call: &ForwardCall) -> Tensor;

    /// The same with what a pooler of its own makes of the states.
    fn forward_pooled(&self, call: &ForwardCall, pooler: &dyn Pooler) -> [Tensor; 2] {
        let states = self.forward(call);
        let pooled = pooler.forward(&states);
        [states, pooled]
    }
}

/// `XForTokenClassification` of BERT, RoBERTa and DistilBERT.
pub(crate) struct ForTokenClassification<E> {
    module: Module,
    encoder: E,
    classifier: DroppedClassifier,
}

impl<E: Encoder> ForTokenClassification<E> {
    pub(crate) fn new(at: &Builder, encoder: E, width: u64, classes: Classes, options: &RunOptions) -> Self {
        let classifier = DroppedClassifier::new(at, width, classes, options);
        Self { module: at.module(), encoder, classifier }
    }
}

impl<E: Encoder> Model for ForTokenClassification<E> {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let sequence_output = self.encoder.forward(call);
        self.classifier.classify(&sequence_output, call)
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.encoder.forward(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.classifier.linear()
    }
}

/// What is made of the first token's state beside those of all.
pub(crate) trait Pooler {
    fn forward(&self, hidden_states: &Tensor) -> Tensor;
}

/// The bare model that `AutoModel` is: the states of tokens, and what a pooler makes of them.
pub(crate) struct BaseModel {
    encoder: Box<dyn Encoder>,
    pooler: Option<Box<dyn Pooler>>,
    /// In the place of a head, which it has none: its own words.
    words: Rc<Linear>,
}

impl BaseModel {
    pub(crate) fn boxed<E: Encoder + 'static>(
        at: &Builder,
        encoder: E,
        words: fn(&E) -> &Embedding,
        pooler: Option<Box<dyn Pooler>>,
    ) -> Box<dyn Model> {
        let words = Rc::new(Linear::tied(&at.at("words"), &words(&encoder).weight, None));
        Box::new(Self { encoder: Box::new(encoder), pooler, words })
    }
}

impl Model for BaseModel {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let (states, pooled) = self.base_outputs(call);
        ModelOutput { loss: None, logits: Some(states), cache: None, router: None, more: pooled.into_iter().collect() }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.encoder.forward(call)
    }

    fn base_outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        let Some(pooler) = &self.pooler else { return (self.encoder.forward(call), None) };
        let [states, pooled] = self.encoder.forward_pooled(call, pooler.as_ref());
        (states, Some(pooled))
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        Rc::clone(&self.words)
    }
}
