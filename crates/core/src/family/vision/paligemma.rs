//! PaliGemma (transformers/models/paligemma/modeling_paligemma.py): SigLIP's tower and a projector of one layer; all tokens before the
//! answer see one another.

use std::rc::Rc;

use super::blocks;
use super::places::placeholder_mask;
use super::siglip::{SiglipConfig, SiglipVisionModel};
use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::Vision;
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::{LayerMasks, LayerType, Linear, MaskInputs};
use crate::op::{arange, where_self};
use crate::tensor::Tensor;

#[derive(Debug)]
struct Config {
    siglip: SiglipConfig,
    projection_dim: u64,
    vision: Vision,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let siglip = SiglipConfig::read(vision, &vision.tower()?)?;
    let projection_dim = vision.config.size("projection_dim", 2048)?;
    Ok(Rc::new(Config { siglip, projection_dim, vision: vision.clone() }))
}

impl TowerConfig for Config {
    fn build_tower(&self, at: &Builder, options: &RunOptions, _width: u64) -> Box<dyn Tower> {
        let tower = at.at("vision_tower").frozen(self.vision.freezes_tower);
        let vision_tower = SiglipVisionModel::new(&tower, &self.siglip.clip, options);
        let projector = at.at("multi_modal_projector").frozen(self.vision.freezes_projector);
        let states = self.siglip.clip.layers.hidden_size;
        let linear = Linear::new(&projector.at("linear"), states, self.projection_dim, true);
        Box::new(PaliGemmaTower { vision_tower, projector: projector.module(), linear })
    }
}

struct PaliGemmaTower {
    vision_tower: SiglipVisionModel,
    projector: Module,
    linear: Linear,
}

impl PaliGemmaTower {
    /// `get_image_features(...).pooler_output`
    fn image_features(&self, pixel_values: &Tensor) -> Tensor {
        let last_hidden_state = self.vision_tower.forward(pixel_values);
        let _projector = self.projector.enter();
        self.linear.forward(&last_hidden_state)
    }
}

impl Tower for PaliGemmaTower {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let Some(pixel_values) = &images.pixel_values else { return Embedded::of_text(inputs_embeds) };
        // Positions begin with 1.
        let position_ids = {
            let counted = arange(inputs_embeds.context(), inputs_embeds.size(1)).add_int(0);
            counted.unsqueeze(0).add_int(1)
        };
        let image_features = self.image_features(pixel_values).to(inputs_embeds.dtype());
        let special_image_mask = placeholder_mask(call.input_ids);
        inputs_embeds = inputs_embeds.masked_scatter_tokens(&special_image_mask, &image_features);
        Embedded {
            inputs_embeds,
            position_ids: Some(position_ids),
            image_hidden_states: Some(image_features),
            kept: vec![special_image_mask],
        }
    }

    fn create_masks(
        &self,
        inputs: MaskInputs,
        (types, window): (&[LayerType], u64),
        token_types: &Tensor,
    ) -> Option<(LayerMasks, Tensor)> {
        let block_sequence_ids = {
            let is_prefix = token_types.eq_number(0.0);
            where_self(&is_prefix, None, DType::Int64)
        };
        let full = blocks::full_mask(inputs, &block_sequence_ids);
        let slides = types.contains(&LayerType::SlidingAttention);
        let sliding = slides.then(|| blocks::sliding_mask(inputs, window, &block_sequence_ids));
        Some((LayerMasks::given(Some(full), sliding), block_sequence_ids))
    }
}
