//! BERT's masked-LM head.

use std::rc::Rc;

use crate::nn::{Activation, Builder, Embedding, LayerNorm, Linear, Module};
use crate::tensor::Tensor;

use super::Config;

/// `BertLMPredictionHead` with its transform.
pub(super) struct BertPredictions {
    pub(super) module: Module,
    transform: Module,
    dense: Linear,
    act: Module,
    layer_norm: LayerNorm,
    pub(super) decoder: Rc<Linear>,
    /// The head's own bias where the decoder does not share it: nothing reads it.
    _unused_bias: Option<Tensor>,
    activation: Activation,
}

impl BertPredictions {
    pub(super) fn new(at: &Builder, config: Config, word_embeddings: &Embedding) -> Self {
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        // `parameters()` lists the head's own bias before its children, which `to` moves first.
        let bias_slot = at.next_slot();
        let transform = at.at("transform");
        let module = at.module();
        let dense = Linear::new(&transform.at("dense"), hidden, hidden, true);
        let layer_norm = LayerNorm::new(&transform.at("LayerNorm"), hidden);
        let decoder_at = at.at("decoder");
        let (decoder, _unused_bias) = if config.tie_word_embeddings {
            let bias = decoder_at.parameter_listed_at(bias_slot, &[vocabulary]);
            (Linear::tied(&decoder_at, &word_embeddings.weight, Some(&bias)), None)
        } else {
            let decoder = Linear::head(&decoder_at, hidden, vocabulary, true);
            (decoder, Some(at.parameter_listed_at(bias_slot, &[vocabulary])))
        };
        let act = transform.at("transform_act_fn").module();
        let activation = config.activation;
        let decoder = Rc::new(decoder);
        Self { module, transform: transform.module(), dense, act, layer_norm, decoder, _unused_bias, activation }
    }

    pub(super) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = self.transform(hidden_states);
        self.decoder.forward(&hidden_states)
    }

    pub(super) fn transform(&self, hidden_states: &Tensor) -> Tensor {
        let _transform = self.transform.enter();
        let hidden_states = {
            let projected = self.dense.forward(hidden_states);
            let _act = self.act.enter();
            self.activation.forward(&projected)
        };
        self.layer_norm.forward(&hidden_states)
    }
}
