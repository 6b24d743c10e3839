//! SigLIP's tower (transformers/models/siglip/modeling_siglip.py, `SiglipVisionModel`).

use std::rc::Rc;

use super::clip::{ClipConfig, Embeddings};
use super::clip_layer::{Kind, Layer, LayerCall};
use crate::building::{Builder, Module};
use crate::job::{FieldError, Fields, Vision};
use crate::model::family::RunOptions;
use crate::model::family::encoder::run_layers;
use crate::model::nn::LayerNorm;
use crate::tensor::Tensor;

/// What `SiglipVisionConfig` has.
#[derive(Debug)]
pub(super) struct SiglipConfig {
    pub clip: ClipConfig,
}

impl SiglipConfig {
    pub(super) fn read(vision: &Vision, tower: &Fields) -> Result<Self, FieldError> {
        let other = tower.text("model_type", "siglip_vision_model")?;
        if other != "siglip_vision_model" {
            return Err(FieldError::unsimulated("vision_config", format!("the tower `{other}` is not simulated here")));
        }
        // Where a config says nothing of it the tower has the head that makes one state of an image; the tower that stands where no
        // `vision_config` is has none.
        if tower.flag("vision_use_head", !vision.has_default_tower())? {
            let problem =
                "the tower's head, which nothing here reads, is not simulated: published configs leave it out";
            return Err(FieldError::unsimulated("vision_use_head", problem));
        }
        Ok(Self { clip: ClipConfig::read(tower, vision.image(tower)?, Kind::Siglip)? })
    }
}

pub(in crate::family) struct SiglipVisionModel {
    module: Module,
    embeddings: Embeddings,
    encoder: Module,
    layers: Vec<Rc<Layer>>,
    post_layernorm: LayerNorm,
    options: RunOptions,
}

impl SiglipVisionModel {
    pub(in crate::family) fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let module = at.module();
        let embeddings = Embeddings::new(&at.at("embeddings"), config, options);
        let encoder = at.at("encoder");
        Self {
            module,
            embeddings,
            encoder: encoder.module(),
            layers: config.layers.layers(&encoder, options),
            post_layernorm: config.layers.norm(&at.at("post_layernorm")),
            options: options.clone(),
        }
    }

    /// `last_hidden_state`
    pub(super) fn forward(&self, pixel_values: &Tensor) -> Tensor {
        self.forward_with(pixel_values, |_| ()).0
    }

    /// The same with what a head of its own makes of it.
    pub(in crate::family) fn forward_with<T>(
        &self,
        pixel_values: &Tensor,
        head: impl FnOnce(&Tensor) -> T,
    ) -> (Tensor, T) {
        let _module = self.module.enter();
        let hidden_states = self.embeddings.forward(pixel_values);
        let encoded = {
            let _encoder = self.encoder.enter();
            run_layers(&self.layers, &hidden_states, |_| LayerCall::default(), &self.options)
        };
        let last_hidden_state = self.post_layernorm.forward(&encoded);
        let pooler_output = head(&last_hidden_state);
        (last_hidden_state, pooler_output)
    }
}
