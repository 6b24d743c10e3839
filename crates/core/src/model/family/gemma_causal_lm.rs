//! `Gemma2ForCausalLM` and its relatives: the head over whatever model a Gemma is.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::model::nn::{Embedding, HeadOutput, KvCache, Linear, LmHead};
use crate::tensor::Tensor;

use super::decoder::DecoderConfig;
use super::gemma2::cap;
use super::{ForwardCall, Model, ModelOutput};

/// A model of Gemma's family without its head.
pub(crate) trait GemmaBase {
    fn forward(&self, call: &ForwardCall) -> Tensor;

    /// The same with what a tower made of images.
    fn outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        (self.forward(call), None)
    }

    fn embed_tokens(&self) -> &Embedding;

    /// The window of each layer that has a place in the cache.
    fn cache_windows(&self) -> Vec<Option<u64>>;
}

/// `Gemma2ForCausalLM` and its relatives, which differ in what they have below the head.
pub(crate) struct GemmaForCausalLm {
    module: Module,
    model: Box<dyn GemmaBase>,
    lm_head: LmHead,
    final_logit_softcapping: Option<f64>,
}

impl GemmaForCausalLm {
    /// With what `new_model` makes below the head.
    pub(crate) fn with_model(
        at: &Builder,
        decoder: &DecoderConfig,
        final_logit_softcapping: Option<f64>,
        new_model: impl FnOnce(&Builder) -> Box<dyn GemmaBase>,
    ) -> Self {
        let module = at.module();
        let at = &at.deviating(decoder.initializer_range);
        let model = new_model(&at.at("model"));
        let tied = decoder.tie_word_embeddings.then_some(model.embed_tokens());
        let lm_head = LmHead::new(&at.at("lm_head"), decoder.hidden_size, decoder.vocab_size, tied);
        Self { module, model, lm_head, final_logit_softcapping }
    }
}

impl Model for GemmaForCausalLm {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        let _module = self.module.enter();
        let (hidden_states, image_hidden_states) = self.model.outputs(call);
        let cap_logits = |logits| match self.final_logit_softcapping {
            Some(softcap) => cap(logits, softcap),
            None => logits,
        };
        let HeadOutput { loss, logits } = self.lm_head.forward(&hidden_states, &call.head(), cap_logits);
        ModelOutput {
            loss,
            logits,
            cache: call.cache.clone(),
            router: None,
            more: image_hidden_states.into_iter().collect(),
        }
    }

    fn hidden_states(&self, call: &ForwardCall) -> Tensor {
        self.model.forward(call)
    }

    fn base_outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        self.model.outputs(call)
    }

    fn output_embeddings(&self) -> Rc<Linear> {
        self.lm_head.linear()
    }

    fn new_cache(&self) -> Rc<KvCache> {
        Rc::new(KvCache::new(self.model.cache_windows()))
    }
}
