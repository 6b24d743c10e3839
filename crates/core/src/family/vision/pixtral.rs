//! Pixtral's tower (transformers/models/pixtral/modeling_pixtral.py): the patches of all images of a batch in one row, with a mask by
//! which each image sees itself alone.

use std::rc::Rc;

use super::grids::call_block;
use super::places::require_patch_grads;
use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Vision};
use crate::model::family::RunOptions;
use crate::model::family::bounds::{bound_weights, check_divides};
use crate::model::family::encoder::{EncoderLayer, attend};
use crate::model::family::gated_mlp::{self, DecoderMlp};
use crate::model::nn::{Activation, Conv2d, Linear, RmsNorm, rotate};
use crate::op::{arange, cat, filled, full, stack_last};
use crate::tensor::Tensor;

/// What `PixtralVisionConfig` has (transformers 5.17), under its own names.
#[derive(Debug)]
pub(super) struct PixtralConfig {
    pub hidden_size: u64,
    intermediate_size: u64,
    num_hidden_layers: u64,
    num_attention_heads: u64,
    activation: Activation,
    num_channels: u64,
    patch_size: u64,
    /// Height and width of an image in patches.
    pub sides: [u64; 2],
}

impl PixtralConfig {
    pub(super) fn read(vision: &Vision, tower: &Fields) -> Result<Self, FieldError> {
        let other = tower.text("model_type", "pixtral")?;
        if other != "pixtral" {
            let problem = format!("the tower `{other}` is not simulated here");
            return Err(FieldError::unsimulated("vision_config", problem));
        }
        if tower.probability("attention_dropout", 0.0)? > 0.0 {
            return Err(FieldError::unsimulated("attention_dropout", "dropout in this tower is not simulated"));
        }
        let patch_size = vision.patch_side(tower)?;
        let config = Self {
            hidden_size: tower.size("hidden_size", 1024)?,
            intermediate_size: tower.size("intermediate_size", 4096)?,
            num_hidden_layers: tower.layers("num_hidden_layers", 24)?,
            num_attention_heads: tower.size("num_attention_heads", 16)?,
            activation: Activation::from_name("hidden_act", tower.text("hidden_act", "gelu")?)?,
            num_channels: tower.size("num_channels", 3)?,
            patch_size,
            sides: vision.sides.map(|side| side / patch_size),
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("patch_size", [config.num_channels * patch_size * patch_size, hidden], 1),
            ("intermediate_size", [config.intermediate_size, hidden], 3 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        Ok(config)
    }

    fn norm(&self, at: &Builder) -> RmsNorm {
        RmsNorm::new(at, self.hidden_size, 1e-5)
    }
}

/// What a layer is given beside the states.
struct Call {
    _position_ids: Tensor,
    mask: Tensor,
    cos: Tensor,
    sin: Tensor,
}

struct Attention {
    module: Module,
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    o_proj: Linear,
    heads: u64,
    options: RunOptions,
}

impl Attention {
    fn new(at: &Builder, config: &PixtralConfig, options: &RunOptions) -> Self {
        let linear = |name| Linear::new(&at.at(name), config.hidden_size, config.hidden_size, false);
        Self {
            module: at.module(),
            k_proj: linear("k_proj"),
            v_proj: linear("v_proj"),
            q_proj: linear("q_proj"),
            o_proj: linear("o_proj"),
            heads: config.num_attention_heads,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &Call) -> Tensor {
        let _module = self.module.enter();
        let [rows, patches, width] = [0, 1, 2].map(|at| hidden_states.size(at));
        let shape = [rows, patches, self.heads, width / self.heads];
        let [mut query_states, mut key_states, value_states] = [&self.q_proj, &self.k_proj, &self.v_proj]
            .map(|linear| linear.forward(hidden_states))
            .map(|states| states.view(&shape).transpose(1, 2));
        let (cos, sin) = (call.cos.unsqueeze(0), call.sin.unsqueeze(0));
        (query_states, key_states) = {
            let query = rotate(&query_states, &cos, &sin);
            let key = rotate(&key_states, &cos, &sin);
            (query, key)
        };
        let dropout = (0.0, Some(DType::Float32));
        let states = [&query_states, &key_states, &value_states];
        let (mut attn_output, _weights) = attend(states, Some(&call.mask), dropout, &self.options);
        attn_output = attn_output.reshape(&[rows, patches, width]).contiguous();
        self.o_proj.forward(&attn_output)
    }
}

fn feed_forward_of(at: &Builder, config: &PixtralConfig) -> DecoderMlp {
    let sizes = [config.hidden_size, config.intermediate_size];
    DecoderMlp::with_sizes(at, gated_mlp::NAMES, sizes, (false, config.activation))
}

struct Layer {
    module: Module,
    attention_norm: RmsNorm,
    feed_forward: DecoderMlp,
    attention: Attention,
    ffn_norm: RmsNorm,
}

impl EncoderLayer for Layer {
    type Call = Call;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &Call) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.attention_norm.forward(residual);
        hidden_states = self.attention.forward(&hidden_states, call);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.ffn_norm.forward(&hidden_states);
        hidden_states = self.feed_forward.forward(&hidden_states);
        &residual + &hidden_states
    }
}

pub(super) struct PixtralVisionModel {
    module: Module,
    patch_conv: Conv2d,
    ln_pre: RmsNorm,
    transformer: Module,
    layers: Vec<Rc<Layer>>,
    rotary: Module,
    inv_freq: Tensor,
    _original: Tensor,
    sides: [u64; 2],
    options: RunOptions,
}

impl PixtralVisionModel {
    pub(super) fn new(at: &Builder, config: &PixtralConfig, options: &RunOptions) -> Self {
        let module = at.module();
        let patch = [config.patch_size; 2];
        let patch_conv = Conv2d::without_bias(&at.at("patch_conv"), config.num_channels, config.hidden_size, patch);
        let ln_pre = config.norm(&at.at("ln_pre"));
        let transformer = at.at("transformer");
        let layer = |layer| {
            let at = transformer.at("layers").element(layer);
            let (attention_norm, feed_forward) =
                (config.norm(&at.at("attention_norm")), feed_forward_of(&at.at("feed_forward"), config));
            let attention = Attention::new(&at.at("attention"), config, options);
            let ffn_norm = config.norm(&at.at("ffn_norm"));
            Rc::new(Layer { module: at.module(), attention_norm, feed_forward, attention, ffn_norm })
        };
        let layers = (0..config.num_hidden_layers).map(layer).collect();
        let rotary = at.at("patch_positional_embedding");
        let half_dim = config.hidden_size / config.num_attention_heads / 2;
        let buffer = || rotary.buffer(&[half_dim], DType::Float32, Vec::new);
        Self {
            module,
            patch_conv,
            ln_pre,
            transformer: transformer.module(),
            layers,
            rotary: rotary.module(),
            inv_freq: buffer(),
            _original: buffer(),
            sides: config.sides,
            options: options.clone(),
        }
    }

    /// The states before all layers and after each.
    pub(super) fn forward(&self, pixel_values: &Tensor, image_sizes: &Tensor) -> Vec<Tensor> {
        let _module = self.module.enter();
        let images = image_sizes.size(0);
        let convolved = {
            let pixel_values = pixel_values.to(self.patch_conv.weight().dtype());
            require_patch_grads(&self.options, self.patch_conv.forward(&pixel_values))
        };
        let each = self.crop(&convolved, image_sizes);
        drop(convolved);
        let mut patch_embeds = {
            let flat: Vec<Tensor> =
                each.iter().map(|embed| embed.view(&[embed.size(0), embed.numel() / embed.size(0)]).t()).collect();
            cat(&flat.iter().collect::<Vec<_>>(), 0).unsqueeze(0)
        };
        patch_embeds = self.ln_pre.forward(&patch_embeds);
        let (position_ids, last_grid) = self.position_ids(&patch_embeds, images);
        let (cos, sin) = self.tables(&position_ids, patch_embeds.dtype());
        let mask = filled(patch_embeds.context(), &[patch_embeds.size(1); 2], 0.0, patch_embeds.dtype());
        let mask = mask.unsqueeze(0).unsqueeze(0);
        let mut all = vec![patch_embeds];
        let _transformer = self.transformer.enter();
        for layer in &self.layers {
            let call =
                Call { _position_ids: position_ids.clone(), mask: mask.clone(), cos: cos.clone(), sin: sin.clone() };
            let next = call_block(layer, &all[all.len() - 1], call, &self.options);
            all.push(next);
        }
        drop((position_ids, last_grid, each));
        all
    }

    /// Of each image what is no padding; how much that is the host reads.
    fn crop(&self, convolved: &Tensor, image_sizes: &Tensor) -> Vec<Tensor> {
        let sizes = || {
            let _sides = [(); 2].map(|()| full(image_sizes.context(), "floor_divide.default", &[], DType::Int64));
        };
        (0..image_sizes.size(0))
            .zip(convolved.unbind())
            .map(|(_, embed)| {
                sizes();
                embed
            })
            .collect()
    }

    /// Row and column of each patch, and what the loop over images leaves.
    fn position_ids(&self, like: &Tensor, images: u64) -> (Tensor, Option<[Tensor; 2]>) {
        let (context, [height, width]) = (like.context(), self.sides);
        let (mut all, mut last) = (Vec::new(), None);
        for _ in 0..images {
            let sides = [arange(context, height), arange(context, width)];
            drop(last.replace(sides));
            let flat = [(); 2].map(|()| full(context, "clone.default", &[height * width], DType::Int64));
            all.push(stack_last([&flat[0], &flat[1]]));
        }
        (cat(&all.iter().collect::<Vec<_>>(), 0), last)
    }

    /// `PixtralVisionRotaryEmbedding`
    fn tables(&self, position_ids: &Tensor, dtype: DType) -> (Tensor, Tensor) {
        let _module = self.rotary.enter();
        let context = position_ids.context();
        let _no_grad = context.set_grad_enabled(false);
        let position_ids_expanded = position_ids.unsqueeze(2).float();
        let inv_freq = self.inv_freq.unsqueeze(0);
        let _float32 = context.disable_autocast();
        let freqs = position_ids_expanded.matmul(&inv_freq);
        let mut cos = freqs.cos().mul_scalar(1.0);
        let mut sin = freqs.sin().mul_scalar(1.0);
        cos = recompose(&cos);
        sin = recompose(&sin);
        (cos.to(dtype), sin.to(dtype))
    }
}

/// `recomposition_frequencies`
fn recompose(freq: &Tensor) -> Tensor {
    let half = freq.size(2) / 2;
    let freq_hw = cat(&[&freq.narrow_any(2, half).select(1, 0), &freq.narrow_any(2, half).select(1, 1)], 1);
    cat(&[&freq_hw, &freq_hw], 1)
}
