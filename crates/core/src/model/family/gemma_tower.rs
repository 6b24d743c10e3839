//! Gemmas with a tower in front of them (transformers/models/gemma3/modeling_gemma3.py, `Gemma3Model`;
//! models/paligemma/modeling_paligemma.py), and the language model behind PaliGemma's.

use crate::building::{BuildError, Builder};
use crate::job::ModelSpec;
use crate::model::nn::{Embedding, LayerMasks, MaskInputs};
use crate::tensor::Tensor;

use super::decoder::{DecoderConfig, DecoderDefaults, FULL};
use super::gemma_causal_lm::GemmaBase;
use super::gemma_config::GemmaConfig;
use super::gemma2::{self, GemmaModel};
use super::{ForwardCall, Front, Model, RunOptions};

/// `GemmaConfig`
const GEMMA: DecoderDefaults = DecoderDefaults {
    hidden_size: 3072,
    intermediate_size: 24576,
    num_hidden_layers: 28,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    activation_key: "hidden_act",
    ..gemma2::DEFAULTS
};

/// The language model behind PaliGemma's tower: Gemma 2, or the first Gemma, whose layers have a norm before each branch alone.
pub(crate) fn build_behind_tower(
    model: &ModelSpec,
    at: &Builder,
    options: &RunOptions,
) -> Result<Box<dyn Model>, BuildError> {
    let mut config = if model.model_type == "gemma2" {
        gemma2::read(&model.config)?
    } else {
        let decoder = DecoderConfig::read(&model.config, &GEMMA)?;
        let mut config = GemmaConfig::read(&model.config, decoder, [None, None])?;
        config.query_pre_attn_scalar = config.decoder.head_dim as f64;
        config.decoder.mask_types = FULL;
        config.is_sandwich = false;
        config
    };
    config.final_logit_softcapping = None;
    Ok(gemma2::new_model(at, &config, options))
}

/// `Gemma3Model`, `PaliGemmaModel`: a tower in front, whose tokens see one another.
pub(super) struct SeeingGemma {
    front: Front,
    model: GemmaModel,
}

impl SeeingGemma {
    pub(super) fn new(front: Front, model: GemmaModel) -> Self {
        Self { front, model }
    }

    /// Those that the model makes before its language model runs, by what `token_type_ids` says.
    fn masks(&self, call: &ForwardCall, inputs_embeds: &Tensor) -> Option<(LayerMasks, Tensor)> {
        let token_types = call.images?.token_types.as_ref()?;
        let inputs = call.mask_inputs(self.model.options.attention, inputs_embeds, token_types);
        let inputs = MaskInputs { position_ids: call.position_ids, ..inputs };
        let decoder = &self.model.config.decoder;
        self.front.masks(inputs, (decoder.mask_types, decoder.sliding_window), token_types)
    }
}

impl GemmaBase for SeeingGemma {
    fn forward(&self, call: &ForwardCall) -> Tensor {
        self.outputs(call).0
    }

    fn outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        self.front.forward(
            call,
            || self.model.embed(call.input_ids),
            |call, inputs_embeds| {
                let (masks, blocks) = self.masks(call, &inputs_embeds).unzip();
                let hidden_states = {
                    let _module = self.model.module.enter();
                    self.model.run_layers(call, &inputs_embeds, masks)
                };
                drop(blocks);
                hidden_states
            },
        )
    }

    fn embed_tokens(&self) -> &Embedding {
        GemmaBase::embed_tokens(&self.model)
    }

    fn cache_windows(&self) -> Vec<Option<u64>> {
        self.model.cache_windows()
    }
}
