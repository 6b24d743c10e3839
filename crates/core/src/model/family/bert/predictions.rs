//! BERT's masked-LM head.

use std::rc::Rc;

use crate::building::{Builder, Init, Module};
use crate::model::nn::{Activation, Embedding, LayerNorm, Linear};
use crate::tensor::Tensor;

use super::Config;

/// `BertLMPredictionHead` with its transform.
pub(crate) struct BertPredictions {
    pub(crate) module: Module,
    transform: Module,
    dense: Linear,
    act: Module,
    layer_norm: LayerNorm,
    pub(crate) decoder: Rc<Linear>,
    /// The head's own bias where the decoder does not share it: nothing reads it.
    _unused_bias: Option<Tensor>,
    activation: Activation,
}

impl BertPredictions {
    pub(crate) fn new(at: &Builder, config: Config, word_embeddings: &Embedding) -> Self {
        let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
        // `parameters()` lists the head's own bias before its children, which `to` moves first.
        let bias_slot = at.next_slot();
        let transform = at.at("transform");
        let module = at.module();
        let dense = Linear::new(&transform.at("dense"), hidden, hidden, true);
        let layer_norm = LayerNorm::new(&transform.at("LayerNorm"), hidden, config.layer_norm_eps);
        let decoder_at = at.at("decoder");
        let (decoder, _unused_bias) = if config.tie_word_embeddings {
            // `_tie_weights`: the decoder's bias, under the name of the head's.
            let bias = decoder_at.called_as(at).parameter_listed_at(bias_slot, "bias", &[vocabulary], Init::Zeros);
            (Linear::tied(&decoder_at, &word_embeddings.weight, Some(&bias)), None)
        } else {
            let decoder = Linear::head(&decoder_at, hidden, vocabulary, true);
            (decoder, Some(at.parameter_listed_at(bias_slot, "bias", &[vocabulary], Init::Zeros)))
        };
        let act = transform.at("transform_act_fn").module();
        let activation = config.activation;
        let decoder = Rc::new(decoder);
        Self { module, transform: transform.module(), dense, act, layer_norm, decoder, _unused_bias, activation }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = self.transform(hidden_states);
        self.decoder.forward(&hidden_states)
    }

    pub(crate) fn transform(&self, hidden_states: &Tensor) -> Tensor {
        let _transform = self.transform.enter();
        let hidden_states = {
            let projected = self.dense.forward(hidden_states);
            let _act = self.act.enter();
            self.activation.forward(&projected)
        };
        self.layer_norm.forward(&hidden_states)
    }
}
