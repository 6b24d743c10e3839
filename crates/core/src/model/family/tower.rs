//! What a language model has in front of it that makes embeddings of images: a tower with its projector.

use std::fmt::Debug;

use crate::building::{Builder, Module};
use crate::model::nn::{LayerMasks, LayerType, MaskInputs};
use crate::tensor::Tensor;

use super::{ForwardCall, RunOptions};

/// What a processor makes of the images of a batch.
#[derive(Clone, Default)]
pub(crate) struct Images {
    pub pixel_values: Option<Tensor>,
    /// `image_grid_thw`, of [images, 3]: frames, rows and columns of patches.
    pub grid_thw: Option<Tensor>,
    /// `token_type_ids`, or what a family calls them.
    pub token_types: Option<Tensor>,
}

/// A tower, as the config of its family says it.
pub(crate) trait TowerConfig: Debug {
    /// Builds it in front of a language model of so many numbers a token.
    fn build_tower(&self, at: &Builder, options: &RunOptions, width: u64) -> Box<dyn Tower>;
}

/// A tower on the device.
pub(crate) trait Tower {
    /// What the language model is given in place of the embeddings of its ids.
    fn embed_images(&self, inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded;

    /// What is added to the states behind this layer of the language model.
    fn after_layer(&self, _layer: usize, hidden_states: Tensor) -> Tensor {
        hidden_states
    }

    /// The forward pass of the model is over.
    fn end_forward(&self) {}

    /// Masks of these types of layers, with a window, where tokens of images see those behind them too; and what they were made of,
    /// which lives as long as the forward pass.
    fn create_masks(
        &self,
        _inputs: MaskInputs,
        _types: (&[LayerType], u64),
        _token_types: &Tensor,
    ) -> Option<(LayerMasks, Tensor)> {
        None
    }
}

/// What the language model is given, and what Python's variables keep beside.
pub(crate) struct Embedded {
    pub inputs_embeds: Tensor,
    /// Positions in time, height and width, where the family computes them.
    pub position_ids: Option<Tensor>,
    /// What the model returns of it: the states of images, or how far positions run behind their tokens.
    pub image_hidden_states: Option<Tensor>,
    /// Variables of the forward pass.
    pub kept: Vec<Tensor>,
}

impl Embedded {
    /// Rows without images.
    pub(crate) fn of_text(inputs_embeds: Tensor) -> Self {
        Self { inputs_embeds, position_ids: None, image_hidden_states: None, kept: Vec::new() }
    }
}

/// The model that holds a tower and a language model without its head.
pub(crate) struct Front {
    module: Module,
    tower: Box<dyn Tower>,
}

impl Front {
    /// The tower at `at`, if the run has one, and the place of the language model behind it.
    pub(crate) fn before(at: &Builder, options: &RunOptions, width: u64) -> (Option<Self>, Builder) {
        let Some(config) = &options.tower else { return (None, at.clone()) };
        let module = at.module();
        let tower = config.build_tower(at, options, width);
        (Some(Self { module, tower }), at.at("language_model"))
    }

    /// What is added to the states behind this layer of the language model.
    pub(crate) fn after_layer(&self, layer: usize, hidden_states: Tensor) -> Tensor {
        self.tower.after_layer(layer, hidden_states)
    }

    /// Masks that are made before the language model runs.
    pub(crate) fn masks(
        &self,
        inputs: MaskInputs,
        types: (&[LayerType], u64),
        token_types: &Tensor,
    ) -> Option<(LayerMasks, Tensor)> {
        self.tower.create_masks(inputs, types, token_types)
    }

    /// The last hidden states, and what the model returns of the images.
    pub(crate) fn forward(
        &self,
        call: &ForwardCall,
        embed: impl FnOnce() -> Tensor,
        language_model: impl FnOnce(&ForwardCall, Tensor) -> Tensor,
    ) -> (Tensor, Option<Tensor>) {
        let _module = self.module.enter();
        let inputs_embeds = embed();
        let Some(images) = call.images else { return (language_model(call, inputs_embeds), None) };
        let embedded = self.tower.embed_images(inputs_embeds, images, call);
        let position_ids = call.position_ids.or(embedded.position_ids.as_ref());
        let call = ForwardCall { position_ids, cache: call.cache.clone(), ..*call };
        let hidden_states = language_model(&call, embedded.inputs_embeds.clone());
        drop(embedded.kept);
        self.tower.end_forward();
        (hidden_states, embedded.image_hidden_states)
    }
}
