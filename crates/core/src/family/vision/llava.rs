//! LLaVA (transformers/models/llava/modeling_llava.py): CLIP's tower, and a projector of two layers.

use std::rc::Rc;

use serde_json::Value;

use super::clip::{ClipConfig, ClipVisionModel};
use super::clip_layer::Kind;
use super::linear_pair::LinearPair;
use super::places::placeholder_mask;
use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Vision};
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::Activation;
use crate::op::cat;
use crate::tensor::Tensor;

/// What `LlavaConfig` has beside its text model (transformers 5.17).
#[derive(Debug)]
struct Config {
    clip: ClipConfig,
    /// The hidden states that are projected, from the first or, below zero, from the end.
    vision_feature_layers: Vec<i64>,
    /// `vision_feature_select_strategy` is `default`: the token of the whole image is left out.
    drops_class: bool,
    activation: Activation,
    projector_bias: bool,
    vision: Vision,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let tower = vision.tower()?;
    let other = tower.text("model_type", "clip_vision_model")?;
    if other != "clip_vision_model" {
        return Err(
            FieldError::unsimulated("vision_config", format!("the tower `{other}` is not simulated here")).into()
        );
    }
    let image = vision.image(&tower)?;
    Ok(Rc::new(Config {
        clip: ClipConfig::read(&tower, image, Kind::Clip)?,
        vision_feature_layers: feature_layers(vision)?,
        drops_class: vision.config.text("vision_feature_select_strategy", "default")? == "default",
        activation: Activation::from_name("projector_hidden_act", vision.config.text("projector_hidden_act", "gelu")?)?,
        projector_bias: vision.config.flag("multimodal_projector_bias", true)?,
        vision: vision.clone(),
    }))
}

/// `vision_feature_layer`: one or several.
fn feature_layers(vision: &Vision) -> Result<Vec<i64>, FieldError> {
    let key = "vision_feature_layer";
    let layers = match vision.config.get(key) {
        None => return Ok(vec![-2]),
        Some(Value::Array(layers)) => layers.iter().map(Value::as_i64).collect(),
        Some(layer) => layer.as_i64().map(|layer| vec![layer]),
    };
    layers.filter(|layers| !layers.is_empty()).ok_or_else(|| FieldError::new(key, "must be a layer or a list of them"))
}

impl TowerConfig for Config {
    fn build_tower(&self, at: &Builder, options: &RunOptions, width: u64) -> Box<dyn Tower> {
        let tower = at.at("vision_tower").frozen(self.vision.freezes_tower);
        let projector = at.at("multi_modal_projector").frozen(self.vision.freezes_projector);
        let states = self.clip.layers.hidden_size * self.vision_feature_layers.len() as u64;
        Box::new(LlavaTower {
            vision_tower: ClipVisionModel::new(&tower, &self.clip, options),
            projector: Projector::new(&projector, [states, width], self),
            layers: self.vision_feature_layers.clone(),
            drops_class: self.drops_class,
        })
    }
}

struct Projector {
    module: Module,
    linears: LinearPair,
}

impl Projector {
    fn new(at: &Builder, [states, width]: [u64; 2], config: &Config) -> Self {
        Self {
            module: at.module(),
            linears: LinearPair::new(at, [states, width], (config.projector_bias, config.activation)),
        }
    }

    fn forward(&self, image_features: &Tensor) -> Tensor {
        let _module = self.module.enter();
        self.linears.forward(image_features.clone())
    }
}

struct LlavaTower {
    vision_tower: ClipVisionModel,
    projector: Projector,
    layers: Vec<i64>,
    drops_class: bool,
}

impl LlavaTower {
    /// `hidden_states[layer]`, without the token of the whole image where that is left out.
    fn select_states(&self, hidden_states: &[Tensor], layer: i64) -> Tensor {
        let at = if layer < 0 { hidden_states.len() as i64 + layer } else { layer };
        let at = usize::try_from(at).unwrap_or(0).min(hidden_states.len() - 1);
        let states = &hidden_states[at];
        if self.drops_class { states.slice(1, 1..states.size(1)) } else { states.clone() }
    }

    /// `get_image_features(...).pooler_output`: a view of each image's.
    fn image_features(&self, pixel_values: &Tensor) -> Vec<Tensor> {
        let (hidden_states, pooled_output) = self.vision_tower.forward(pixel_values);
        let selected = match self.layers.as_slice() {
            [layer] => self.select_states(&hidden_states, *layer),
            layers => {
                let pool: Vec<Tensor> = layers.iter().map(|layer| self.select_states(&hidden_states, *layer)).collect();
                cat(&pool.iter().collect::<Vec<_>>(), 2)
            }
        };
        let image_features = self.projector.forward(&selected).unbind();
        drop(pooled_output);
        image_features
    }
}

impl Tower for LlavaTower {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let image_features = {
            let features =
                images.pixel_values.iter().flat_map(|pixels| self.image_features(pixels)).collect::<Vec<_>>();
            // The parts live until the cast is made.
            let joined = cat(&features.iter().collect::<Vec<_>>(), 0);
            joined.to(inputs_embeds.dtype())
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
}
