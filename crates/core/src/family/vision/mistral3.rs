//! Mistral 3 (transformers/models/mistral3/modeling_mistral3.py): Pixtral's tower, whose images see themselves alone, and a projector that
//! merges the patches of a square.

use std::rc::Rc;

use super::linear_pair::LinearPair;
use super::pixtral::{PixtralConfig, PixtralVisionModel};
use super::places::placeholder_mask;
use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Vision};
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::{Activation, Linear, RmsNorm};
use crate::op::{cat, full};
use crate::tensor::Tensor;

#[derive(Debug)]
struct Config {
    pixtral: PixtralConfig,
    merge: u64,
    activation: Activation,
    bias: bool,
    vision: Vision,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    if vision.config.get("vision_feature_layer").is_some_and(|layer| layer.as_i64() != Some(-1)) {
        let problem = "only the last layer's states are simulated";
        return Err(FieldError::unsimulated("vision_feature_layer", problem).into());
    }
    Ok(Rc::new(Config {
        pixtral: PixtralConfig::read(vision, &vision.tower()?)?,
        merge: vision.config.size("spatial_merge_size", 2)?,
        activation: Activation::from_name("projector_hidden_act", vision.config.text("projector_hidden_act", "gelu")?)?,
        bias: vision.config.flag("multimodal_projector_bias", false)?,
        vision: vision.clone(),
    }))
}

impl TowerConfig for Config {
    fn build_tower(&self, at: &Builder, options: &RunOptions, width: u64) -> Box<dyn Tower> {
        let tower = at.at("vision_tower").frozen(self.vision.freezes_tower);
        let vision_tower = PixtralVisionModel::new(&tower, &self.pixtral, options);
        let projector = at.at("multi_modal_projector").frozen(self.vision.freezes_projector);
        Box::new(Mistral3Tower { vision_tower, projector: Projector::new(&projector, width, self) })
    }
}

struct Projector {
    module: Module,
    norm: RmsNorm,
    patch_merger: Module,
    merging_layer: Linear,
    linears: LinearPair,
    merge: u64,
    /// Height and width of an image in patches.
    sides: [u64; 2],
}

impl Projector {
    fn new(at: &Builder, width: u64, config: &Config) -> Self {
        let (states, merger) = (config.pixtral.hidden_size, at.at("patch_merger"));
        let unit = config.merge * config.merge;
        Self {
            module: at.module(),
            norm: RmsNorm::new(&at.at("norm"), states, 1e-6),
            patch_merger: merger.module(),
            merging_layer: Linear::new(&merger.at("merging_layer"), states * unit, states, false),
            linears: LinearPair::new(at, [states, width], (config.bias, config.activation)),
            merge: config.merge,
            sides: config.pixtral.sides,
        }
    }

    fn forward(&self, image_features: &Tensor, image_sizes: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.norm.forward(image_features);
        hidden_states = self.merge_patches(&hidden_states, image_sizes);
        self.linears.forward(hidden_states)
    }

    /// `Mistral3PatchMerger`
    fn merge_patches(&self, image_features: &Tensor, image_sizes: &Tensor) -> Tensor {
        let _module = self.patch_merger.enter();
        let (images, width, [height, wide]) = (image_sizes.size(0), image_features.size(1), self.sides);
        let number = |op| full(image_features.context(), op, &[], DType::Int64);
        let sizes: Vec<Tensor> = (0..2 * images).map(|_| number("floor_divide.default")).collect();
        let tokens_per_image: Vec<Tensor> = (0..images).map(|_| number("mul.Tensor")).collect();
        let each = image_features.split_lengths(0, &vec![height * wide; images as usize]);
        let grids: Vec<Tensor> = each
            .iter()
            .map(|tokens| {
                let grid = tokens.view(&[1, height, wide, width]).permute([0, 3, 1, 2]);
                grid.unfold_squares(self.merge).t()
            })
            .collect();
        let merged = cat(&grids.iter().collect::<Vec<_>>(), 0);
        let merged = self.merging_layer.forward(&merged);
        drop((sizes, tokens_per_image));
        merged
    }
}

struct Mistral3Tower {
    vision_tower: PixtralVisionModel,
    projector: Projector,
}

impl Mistral3Tower {
    /// `cat(get_image_features(...).pooler_output)` in a dtype.
    fn image_features(&self, pixel_values: &Tensor, image_sizes: &Tensor, dtype: DType) -> Tensor {
        let split = {
            let hidden_states = self.vision_tower.forward(pixel_values, image_sizes);
            let last = hidden_states[hidden_states.len() - 1].squeeze(0);
            let features = self.projector.forward(&last, image_sizes);
            {
                let divided = image_sizes.map("floor_divide.default", DType::Int64);
                let _products = full(divided.context(), "prod.dim_int", &[divided.size(0)], DType::Int64);
            }
            let images = image_sizes.size(0);
            features.split_lengths(0, &vec![features.size(0) / images; images as usize])
        };
        let joined = cat(&split.iter().collect::<Vec<_>>(), 0);
        drop(split);
        joined.to(dtype)
    }
}

impl Tower for Mistral3Tower {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let (Some(pixel_values), Some(image_sizes)) = (&images.pixel_values, &images.grid_thw) else {
            return Embedded::of_text(inputs_embeds);
        };
        let image_features = self.image_features(pixel_values, image_sizes, inputs_embeds.dtype());
        let special_image_mask = placeholder_mask(call.input_ids);
        inputs_embeds = inputs_embeds.masked_scatter_tokens(&special_image_mask, &image_features);
        Embedded {
            inputs_embeds,
            position_ids: None,
            image_hidden_states: Some(image_features),
            kept: vec![special_image_mask],
        }
    }
}
