//! The towers of texts: CLIP's, whose tokens see those before them, and SigLIP's.

use std::rc::Rc;

use super::Pooled;
use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::family::vision::clip_layer::{Kind, Layer, LayerCall, LayerConfig};
use crate::job::{FieldError, Fields, ModelingFile};
use crate::model::family::bounds::bound_weights;
use crate::model::family::encoder::{bidirectional_mask, run_layers};
use crate::model::family::{ForwardCall, RunOptions};
use crate::model::nn::{Embedding, LayerNorm, MaskInputs, create_causal_mask};
use crate::tensor::Tensor;

/// What `CLIPTextConfig` and `SiglipTextConfig` have (transformers 5.17), under their own names.
pub(super) struct TextConfig {
    pub layers: LayerConfig,
    vocab_size: u64,
    max_position_embeddings: u64,
}

impl TextConfig {
    pub(super) fn read(fields: &Fields, kind: Kind) -> Result<Self, FieldError> {
        let (sizes, vocabulary, positions) = match kind {
            Kind::Clip => ([512, 2048, 12, 8], 49408, 77),
            Kind::Siglip => ([768, 3072, 12, 12], 32000, 64),
        };
        let config = Self {
            layers: LayerConfig::read(fields, kind, sizes)?,
            vocab_size: fields.size("vocab_size", vocabulary)?,
            max_position_embeddings: fields.size("max_position_embeddings", positions)?,
        };
        let hidden = config.layers.hidden_size;
        let [inner, own] = config.layers.weights();
        bound_weights(&[
            ("vocab_size", [config.vocab_size, hidden], 1),
            ("max_position_embeddings", [config.max_position_embeddings, hidden], 1),
            inner,
            own,
        ])?;
        Ok(config)
    }
}

/// `CLIPTextModel` and `SiglipTextModel`, but for what pools their states.
pub(super) struct TextModel {
    module: Module,
    embeddings: Module,
    token_embedding: Embedding,
    position_embedding: Embedding,
    position_ids: Tensor,
    encoder: Module,
    layers: Vec<Rc<Layer>>,
    final_layer_norm: LayerNorm,
    is_causal: bool,
    options: RunOptions,
}

impl TextModel {
    pub(super) fn new(at: &Builder, config: &TextConfig, options: &RunOptions) -> Self {
        let (place, encoder, width) = (at.at("embeddings"), at.at("encoder"), config.layers.hidden_size);
        let embedding = |name, count| Embedding::new(&place.at(name), count, width, None);
        Self {
            module: at.module(),
            embeddings: place.module(),
            token_embedding: embedding("token_embedding", config.vocab_size),
            position_embedding: embedding("position_embedding", config.max_position_embeddings),
            position_ids: place.buffer(&[1, config.max_position_embeddings], DType::Int64, Vec::new),
            encoder: encoder.module(),
            layers: config.layers.layers(&encoder, options),
            final_layer_norm: config.layers.norm(&at.at("final_layer_norm")),
            is_causal: config.layers.kind == Kind::Clip,
            options: options.clone(),
        }
    }

    fn embed(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.embeddings.enter();
        let position_ids = self.position_ids.narrow(1, 0..input_ids.size(1));
        let inputs_embeds = self.options.require_input_grads(self.token_embedding.forward(input_ids));
        let position_embeddings = self.position_embedding.forward(&position_ids);
        &inputs_embeds + &position_embeddings
    }

    fn mask(&self, hidden_states: &Tensor, call: &ForwardCall) -> Option<Tensor> {
        if !self.is_causal {
            return bidirectional_mask(hidden_states, call, &self.options);
        }
        create_causal_mask(MaskInputs {
            attention: self.options.attention,
            file: ModelingFile::Later,
            inputs_embeds: hidden_states,
            attention_mask: call.attention_mask,
            cache: None,
            position_ids: None,
        })
    }

    pub(super) fn forward(&self, call: &ForwardCall, pool: impl FnOnce(&Tensor) -> Tensor) -> Pooled {
        let _module = self.module.enter();
        let hidden_states = self.embed(call.input_ids);
        let layer_call = LayerCall { mask: self.mask(&hidden_states, call), is_causal: self.is_causal };
        let encoded = {
            let _encoder = self.encoder.enter();
            run_layers(&self.layers, &hidden_states, |_| layer_call.clone(), &self.options)
        };
        let last_hidden_state = self.final_layer_norm.forward(&encoded);
        let pooler_output = pool(&last_hidden_state);
        Pooled { last_hidden_state, pooler_output }
    }
}
