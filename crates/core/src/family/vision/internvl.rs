//! InternVL in transformers' form (transformers/models/internvl/modeling_internvl.py): a ViT whose branches are scaled, four patches
//! in each token, and a projector of two layers. A tile of an image counts as an image.

use std::rc::Rc;

use super::linear_pair::LinearPair;
use super::places::{placeholder_mask, require_patch_grads};
use crate::building::{BuildError, Builder, Init, Module};
use crate::job::{FieldError, Fields, Image, Vision};
use crate::model::family::bounds::{bound_weights, check_divides};
use crate::model::family::encoder::{EncoderLayer, attend, run_layers};
use crate::model::family::image_mlp::ImageMlp;
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::{Activation, ImageTokens, LayerNorm, Linear, PatchEmbeddings};
use crate::tensor::Tensor;

/// What `InternVLVisionConfig` and `InternVLConfig` have (transformers 5.17), under their own names.
#[derive(Debug)]
struct Config {
    image: Image,
    hidden_size: u64,
    intermediate_size: u64,
    num_hidden_layers: u64,
    num_attention_heads: u64,
    attention_bias: bool,
    activation: Activation,
    layer_norm_eps: f64,
    has_mask_token: bool,
    /// `use_mean_pooling` is off: there is a norm behind all layers.
    has_layernorm: bool,
    /// Patches on the side of a square that becomes one token.
    scale: u64,
    projector_activation: Activation,
    vision: Vision,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let tower = vision.tower()?;
    let config = Config::read(vision, &tower)?;
    config.check(&tower)?;
    Ok(Rc::new(config))
}

impl Config {
    fn read(vision: &Vision, tower: &Fields) -> Result<Self, FieldError> {
        let projector = vision.config.text("projector_hidden_act", "gelu")?;
        Ok(Self {
            image: vision.image(tower)?,
            hidden_size: tower.size("hidden_size", 1024)?,
            intermediate_size: tower.size("intermediate_size", 4096)?,
            num_hidden_layers: tower.layers("num_hidden_layers", 24)?,
            num_attention_heads: tower.size("num_attention_heads", 16)?,
            attention_bias: tower.flag("attention_bias", false)?,
            activation: Activation::from_name("hidden_act", tower.text("hidden_act", "gelu")?)?,
            layer_norm_eps: tower.number("layer_norm_eps", 1e-6)?,
            has_mask_token: tower.flag("use_mask_token", false)?,
            has_layernorm: !tower.flag("use_mean_pooling", true)?,
            scale: vision.shuffled_side()?,
            projector_activation: Activation::from_name("projector_hidden_act", projector)?,
            vision: vision.clone(),
        })
    }

    fn check(&self, tower: &Fields) -> Result<(), FieldError> {
        let unsimulated = |key, problem| Err(FieldError::unsimulated(key, problem));
        if tower.flag("use_qk_norm", false)? {
            return unsimulated("use_qk_norm", "norms on queries and keys of this tower are not simulated");
        }
        if tower.text("norm_type", "layer_norm")? != "layer_norm" {
            return unsimulated("norm_type", "only layer_norm is simulated in this tower");
        }
        if !tower.flag("use_absolute_position_embeddings", true)? {
            return unsimulated("use_absolute_position_embeddings", "a tower without positions is not simulated");
        }
        for key in ["hidden_dropout_prob", "attention_dropout", "projection_dropout"] {
            if tower.probability(key, 0.0)? > 0.0 {
                return unsimulated(key, "dropout in this tower is not simulated");
            }
        }
        if self.vision.config.get("vision_feature_layer").is_some_and(|layer| layer.as_i64() != Some(-1)) {
            return unsimulated("vision_feature_layer", "only the last layer's states are simulated");
        }
        if self.vision.config.text("vision_feature_select_strategy", "default")? != "default" {
            return unsimulated("vision_feature_select_strategy", "only `default` is simulated");
        }
        check_divides("num_attention_heads", self.num_attention_heads, "hidden_size", self.hidden_size)?;
        let (hidden, layers, merged) = (self.hidden_size, self.num_hidden_layers, self.merged_size());
        bound_weights(&[
            ("image_size", [self.image.tokens(), hidden], 1),
            ("patch_size", [self.image.channels * self.image.patch[0] * self.image.patch[1], hidden], 1),
            ("intermediate_size", [self.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
            ("downsample_ratio", [merged, hidden], 1),
        ])
    }

    /// Width of the patches that become one token.
    fn merged_size(&self) -> u64 {
        self.hidden_size.saturating_mul(self.scale * self.scale)
    }

    fn norm(&self, at: &Builder) -> LayerNorm {
        LayerNorm::new(at, self.hidden_size, self.layer_norm_eps)
    }
}

impl TowerConfig for Config {
    fn build_tower(&self, at: &Builder, options: &RunOptions, width: u64) -> Box<dyn Tower> {
        let tower = at.at("vision_tower").frozen(self.vision.freezes_tower);
        let vision_tower = VisionModel::new(&tower, self, options);
        let projector = at.at("multi_modal_projector").frozen(self.vision.freezes_projector);
        let projector = Projector::new(&projector, [self.merged_size(), width], self.projector_activation);
        Box::new(InternVlTower { vision_tower, projector, scale: self.scale })
    }
}

struct Attention {
    module: Module,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    projection_layer: Linear,
    heads: u64,
    options: RunOptions,
}

impl Attention {
    fn new(at: &Builder, config: &Config, options: &RunOptions) -> Self {
        let linear = |name, bias| Linear::new(&at.at(name), config.hidden_size, config.hidden_size, bias);
        Self {
            module: at.module(),
            q_proj: linear("q_proj", config.attention_bias),
            k_proj: linear("k_proj", config.attention_bias),
            v_proj: linear("v_proj", config.attention_bias),
            projection_layer: linear("projection_layer", true),
            heads: config.num_attention_heads,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [rows, tokens, width] = [0, 1, 2].map(|at| hidden_states.size(at));
        let shape = [rows, tokens, self.heads, width / self.heads];
        let states = [&self.q_proj, &self.k_proj, &self.v_proj]
            .map(|linear| linear.forward(hidden_states).view(&shape).transpose(1, 2));
        let (mut attn_output, _weights) = attend(states.each_ref(), None, (0.0, None), &self.options);
        attn_output = attn_output.reshape(&[rows, tokens, width]);
        self.projection_layer.forward(&attn_output)
    }
}

struct Layer {
    module: Module,
    lambdas: [Tensor; 2],
    attention: Attention,
    mlp: ImageMlp,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
}

impl Layer {
    fn new(at: &Builder, config: &Config, options: &RunOptions) -> Self {
        let (module, slot) = (at.module(), at.next_slot());
        let attention = Attention::new(&at.at("attention"), config, options);
        let mlp = ImageMlp::new(&at.at("mlp"), [config.hidden_size, config.intermediate_size], config.activation);
        let layernorm_before = config.norm(&at.at("layernorm_before"));
        let layernorm_after = config.norm(&at.at("layernorm_after"));
        let lambda = |(at_slot, name)| at.parameter_listed_at(slot + at_slot, name, &[config.hidden_size], Init::Ones);
        let lambdas = [(0, "lambda_1"), (1, "lambda_2")].map(lambda);
        Self { module, lambdas, attention, mlp, layernorm_before, layernorm_after }
    }
}

impl EncoderLayer for Layer {
    type Call = ();

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, _call: &()) -> Tensor {
        let _module = self.module.enter();
        let mut attention_output = {
            let normed = self.layernorm_before.forward(hidden_states);
            self.attention.forward(&normed)
        };
        attention_output = &self.lambdas[0] * &attention_output;
        let hidden_states = &attention_output + hidden_states;
        let mut layer_output = self.layernorm_after.forward(&hidden_states);
        layer_output = self.mlp.forward(&layer_output);
        layer_output = &self.lambdas[1] * &layer_output;
        &layer_output + &hidden_states
    }
}

struct VisionModel {
    module: Module,
    embeddings: Module,
    patch_embeddings: PatchEmbeddings,
    tokens: ImageTokens,
    encoder: Module,
    layers: Vec<Rc<Layer>>,
    layernorm: Option<LayerNorm>,
    options: RunOptions,
}

impl VisionModel {
    fn new(at: &Builder, config: &Config, options: &RunOptions) -> Self {
        let (module, place, encoder) = (at.module(), at.at("embeddings"), at.at("encoder"));
        let (embeddings, slot, width) = (place.module(), place.next_slot(), config.hidden_size);
        let patch_embeddings = PatchEmbeddings::new(&place.at("patch_embeddings"), config.image, width);
        let mask_sizes = [1, 1, width];
        let mask_token = config.has_mask_token.then_some(mask_sizes.as_slice());
        let tokens = ImageTokens::new(&place, slot, config.image, width, mask_token);
        let layer = |layer| Rc::new(Layer::new(&encoder.at("layer").element(layer), config, options));
        Self {
            module,
            embeddings,
            patch_embeddings,
            tokens,
            encoder: encoder.module(),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            layernorm: config.has_layernorm.then(|| config.norm(&at.at("layernorm"))),
            options: options.clone(),
        }
    }

    /// `last_hidden_state`
    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let embedding_output = {
            let _embeddings = self.embeddings.enter();
            let pixel_values = pixel_values.to(self.patch_embeddings.weight().dtype());
            let patches = require_patch_grads(&self.options, self.patch_embeddings.forward(&pixel_values));
            self.tokens.add_to(patches)
        };
        let mut sequence_output = {
            let _encoder = self.encoder.enter();
            run_layers(&self.layers, &embedding_output, |_| (), &self.options)
        };
        if let Some(layernorm) = &self.layernorm {
            sequence_output = layernorm.forward(&sequence_output);
        }
        sequence_output
    }
}

struct Projector {
    module: Module,
    layer_norm: LayerNorm,
    linears: LinearPair,
}

impl Projector {
    fn new(at: &Builder, [merged, width]: [u64; 2], activation: Activation) -> Self {
        Self {
            module: at.module(),
            layer_norm: LayerNorm::new(&at.at("layer_norm"), merged, 1e-5),
            linears: LinearPair::new(at, [merged, width], (true, activation)),
        }
    }

    fn forward(&self, image_features: &Tensor) -> Tensor {
        let _module = self.module.enter();
        self.linears.forward(self.layer_norm.forward(image_features))
    }
}

struct InternVlTower {
    vision_tower: VisionModel,
    projector: Projector,
    scale: u64,
}

impl InternVlTower {
    /// `get_image_features(...).pooler_output`
    fn image_features(&self, pixel_values: &Tensor) -> Tensor {
        let pixel_values = pixel_values.to(self.vision_tower.patch_embeddings.weight().dtype());
        let last_hidden_state = self.vision_tower.forward(&pixel_values);
        let mut features = last_hidden_state.slice(1, 1..last_hidden_state.size(1));
        let (rows, side, width) = (features.size(0), features.size(1).isqrt(), features.size(2));
        features = features.view(&[rows, side, side, width]);
        features = pixel_shuffle(&features, self.scale);
        features = features.view(&[rows, features.size(1) * features.size(2), features.size(3)]);
        features = self.projector.forward(&features);
        drop(last_hidden_state);
        features
    }
}

/// `pixel_shuffle`: the patches of a square side by side.
fn pixel_shuffle(features: &Tensor, scale: u64) -> Tensor {
    let [rows, wide, height, width] = [0, 1, 2, 3].map(|at| features.size(at));
    let mut shuffled = features.view(&[rows, wide, height / scale, width * scale]);
    shuffled = shuffled.permute([0, 2, 1, 3]).contiguous();
    shuffled = shuffled.view(&[rows, height / scale, wide / scale, width * scale * scale]);
    shuffled = shuffled.permute([0, 2, 1, 3]).contiguous();
    shuffled
}

impl Tower for InternVlTower {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let Some(pixel_values) = &images.pixel_values else { return Embedded::of_text(inputs_embeds) };
        let image_features = self.image_features(pixel_values).to(inputs_embeds.dtype());
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
