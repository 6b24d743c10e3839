//! Gemma 3 (transformers/models/gemma3/modeling_gemma3.py): SigLIP's tower, whose patches a projector averages, and masks by which the
//! tokens of an image see one another.

use std::rc::Rc;

use super::blocks;
use super::places::placeholder_mask;
use super::siglip::{SiglipConfig, SiglipVisionModel};
use crate::building::{BuildError, Builder, Init, Module};
use crate::job::{FieldError, Vision};
use crate::model::family::gemma2::GemmaRmsNorm;
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::{LayerMasks, LayerType, MaskInputs};
use crate::tensor::Tensor;

#[derive(Debug)]
struct Config {
    siglip: SiglipConfig,
    /// Patches on a side of an image, and of a square that becomes one token.
    sides: [u64; 2],
    layer_norm_eps: f64,
    vision: Vision,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let tower = vision.tower()?;
    let siglip = SiglipConfig::read(vision, &tower)?;
    let image = siglip.clip.image;
    let (patches, tokens) = (image.sides[0] / image.patch[0], vision.tokens()?.isqrt());
    if image.sides[0] != image.sides[1] || tokens == 0 || tokens > patches {
        return Err(FieldError::new("mm_tokens_per_image", "is no square of squares of an image's patches").into());
    }
    let kernel = patches / tokens;
    if patches / kernel * (patches / kernel) != vision.tokens()? {
        return Err(
            FieldError::new("mm_tokens_per_image", "is not what its patches make when they are averaged").into()
        );
    }
    let layer_norm_eps = tower.number("layer_norm_eps", 1e-6)?;
    Ok(Rc::new(Config { siglip, sides: [patches, kernel], layer_norm_eps, vision: vision.clone() }))
}

impl TowerConfig for Config {
    fn build_tower(&self, at: &Builder, options: &RunOptions, width: u64) -> Box<dyn Tower> {
        let tower = at.at("vision_tower").frozen(self.vision.freezes_tower);
        let projector = at.at("multi_modal_projector").frozen(self.vision.freezes_projector);
        Box::new(Gemma3Tower {
            vision_tower: SiglipVisionModel::new(&tower, &self.siglip.clip, options),
            projector: Projector::new(&projector, width, self),
        })
    }
}

struct Projector {
    module: Module,
    mm_input_projection_weight: Tensor,
    mm_soft_emb_norm: GemmaRmsNorm,
    avg_pool: Module,
    sides: [u64; 2],
}

impl Projector {
    fn new(at: &Builder, width: u64, config: &Config) -> Self {
        let (module, slot, states) = (at.module(), at.next_slot(), config.siglip.clip.layers.hidden_size);
        let mm_soft_emb_norm = GemmaRmsNorm::new(&at.at("mm_soft_emb_norm"), states, config.layer_norm_eps);
        let name = "mm_input_projection_weight";
        Self {
            module,
            mm_input_projection_weight: at.parameter_listed_at(slot, name, &[states, width], Init::Zeros),
            mm_soft_emb_norm,
            avg_pool: at.at("avg_pool").module(),
            sides: config.sides,
        }
    }

    fn forward(&self, vision_outputs: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [patches, kernel] = self.sides;
        let sizes = [vision_outputs.size(0), vision_outputs.size(2), patches, patches];
        let mut reshaped = vision_outputs.transpose(1, 2).view(&sizes);
        reshaped = reshaped.contiguous();
        let pooled = {
            let _avg_pool = self.avg_pool.enter();
            reshaped.avg_pool2d(kernel)
        };
        let pooled = pooled.view(&[pooled.size(0), pooled.size(1), pooled.size(2) * pooled.size(3)]).transpose(1, 2);
        let normed = self.mm_soft_emb_norm.forward(&pooled);
        let projected = normed.matmul(&self.mm_input_projection_weight);
        projected.to(vision_outputs.dtype())
    }
}

struct Gemma3Tower {
    vision_tower: SiglipVisionModel,
    projector: Projector,
}

impl Tower for Gemma3Tower {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let Some(pixel_values) = &images.pixel_values else { return Embedded::of_text(inputs_embeds) };
        let image_features = {
            let last_hidden_state = self.vision_tower.forward(pixel_values);
            let pooler_output = self.projector.forward(&last_hidden_state);
            drop(last_hidden_state);
            pooler_output.to(inputs_embeds.dtype())
        };
        let special_image_mask = placeholder_mask(call.input_ids);
        inputs_embeds = inputs_embeds.masked_scatter_tokens(&special_image_mask, &image_features);
        Embedded {
            inputs_embeds,
            position_ids: None,
            image_hidden_states: Some(image_features),
            kept: vec![special_image_mask],
        }
    }

    fn create_masks(
        &self,
        inputs: MaskInputs,
        (_, window): (&[LayerType], u64),
        token_types: &Tensor,
    ) -> Option<(LayerMasks, Tensor)> {
        let block_sequence_ids = blocks::of_images(token_types);
        let full = blocks::full_mask(inputs, &block_sequence_ids);
        drop(inputs.attention_mask.map(|mask| mask.to(crate::dtype::DType::Bool)));
        let sliding = blocks::overlaid_sliding_mask(inputs, window, &block_sequence_ids);
        Some((LayerMasks::given(Some(full), Some(sliding)), block_sequence_ids))
    }
}
