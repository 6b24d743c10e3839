//! CLIP's tower (transformers/models/clip/modeling_clip.py, `CLIPVisionModel`).

use std::rc::Rc;

use super::places::require_patch_grads;
use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Image};
use crate::model::family::RunOptions;
use crate::model::family::bounds::{bound_weights, check_divides};
use crate::model::family::encoder::{EncoderLayer, attend};
use crate::model::family::image_mlp::ImageMlp;
use crate::model::nn::{Activation, Conv2d, Embedding, LayerNorm, Linear};
use crate::op::cat;
use crate::tensor::{Tensor, checkpoint};

/// What `CLIPVisionConfig` has (transformers 5.17), under its own names.
#[derive(Debug)]
pub(super) struct ClipConfig {
    pub image: Image,
    pub hidden_size: u64,
    intermediate_size: u64,
    pub num_hidden_layers: u64,
    num_attention_heads: u64,
    activation: Activation,
    layer_norm_eps: f64,
    attention_dropout: f64,
}

impl ClipConfig {
    pub(super) fn read(fields: &Fields, image: Image) -> Result<Self, FieldError> {
        let config = Self {
            image,
            hidden_size: fields.size("hidden_size", 768)?,
            intermediate_size: fields.size("intermediate_size", 3072)?,
            num_hidden_layers: fields.layers("num_hidden_layers", 12)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", "quick_gelu")?)?,
            layer_norm_eps: fields.number("layer_norm_eps", 1e-5)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("image_size", [image.tokens(), hidden], 1),
            ("patch_size", [image.channels * image.patch[0] * image.patch[1], hidden], 1),
            ("intermediate_size", [config.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        Ok(config)
    }

    fn norm(&self, at: &Builder) -> LayerNorm {
        LayerNorm::new(at, self.hidden_size, self.layer_norm_eps)
    }
}

struct Embeddings {
    module: Module,
    class_embedding: Tensor,
    patch_embedding: Conv2d,
    position_embedding: Embedding,
    position_ids: Tensor,
    options: RunOptions,
}

impl Embeddings {
    fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let (module, slot, width, image) = (at.module(), at.next_slot(), config.hidden_size, config.image);
        let patch_embedding = Conv2d::without_bias(&at.at("patch_embedding"), image.channels, width, image.patch);
        let position_embedding = Embedding::new(&at.at("position_embedding"), image.tokens(), width, None);
        let class_embedding = at.parameter_listed_at(slot, "class_embedding", &[width], Init::Normal);
        let position_ids = at.buffer(&[1, image.tokens()], DType::Int64, Vec::new);
        Self { module, class_embedding, patch_embedding, position_embedding, position_ids, options: options.clone() }
    }

    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let patch_embeds = {
            let pixel_values = pixel_values.to(self.patch_embedding.weight().dtype());
            require_patch_grads(&self.options, self.patch_embedding.forward(&pixel_values))
        };
        let [rows, width, height, wide] = [0, 1, 2, 3].map(|at| patch_embeds.size(at));
        let patch_embeds = patch_embeds.view(&[rows, width, height * wide]).transpose(1, 2);
        let class_embeds = self.class_embedding.expand(&[rows, 1, width]);
        let embeddings = cat(&[&class_embeds, &patch_embeds], 1);
        &embeddings + &self.position_embedding.forward(&self.position_ids)
    }
}

struct Attention {
    module: Module,
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    heads: u64,
    dropout: f64,
    options: RunOptions,
}

impl Attention {
    fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let linear = |name| Linear::new(&at.at(name), config.hidden_size, config.hidden_size, true);
        Self {
            module: at.module(),
            k_proj: linear("k_proj"),
            v_proj: linear("v_proj"),
            q_proj: linear("q_proj"),
            out_proj: linear("out_proj"),
            heads: config.num_attention_heads,
            dropout: config.attention_dropout,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [rows, tokens, width] = [0, 1, 2].map(|at| hidden_states.size(at));
        let projected = [&self.q_proj, &self.k_proj, &self.v_proj].map(|linear| linear.forward(hidden_states));
        let shape = [rows, tokens, self.heads, width / self.heads];
        let states = projected.map(|states| states.view(&shape).transpose(1, 2));
        let dropout = (self.dropout, Some(DType::Float32));
        let (mut attn_output, _weights) = attend(states.each_ref(), None, dropout, &self.options);
        attn_output = attn_output.reshape(&[rows, tokens, width]).contiguous();
        self.out_proj.forward(&attn_output)
    }
}

struct Layer {
    module: Module,
    self_attn: Attention,
    layer_norm1: LayerNorm,
    mlp: ImageMlp,
    layer_norm2: LayerNorm,
}

impl Layer {
    fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            self_attn: Attention::new(&at.at("self_attn"), config, options),
            layer_norm1: config.norm(&at.at("layer_norm1")),
            mlp: ImageMlp::new(&at.at("mlp"), [config.hidden_size, config.intermediate_size], config.activation),
            layer_norm2: config.norm(&at.at("layer_norm2")),
        }
    }
}

impl EncoderLayer for Layer {
    type Call = ();

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, _call: &()) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.layer_norm1.forward(residual);
        hidden_states = self.self_attn.forward(&hidden_states);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.layer_norm2.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        &residual + &hidden_states
    }
}

/// `CLIPVisionModel` with `output_hidden_states=True`.
pub(super) struct ClipVisionModel {
    module: Module,
    embeddings: Embeddings,
    pre_layrnorm: LayerNorm,
    encoder: Module,
    layers: Vec<Rc<Layer>>,
    post_layernorm: LayerNorm,
    options: RunOptions,
}

impl ClipVisionModel {
    pub(super) fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let module = at.module();
        let embeddings = Embeddings::new(&at.at("embeddings"), config, options);
        let pre_layrnorm = config.norm(&at.at("pre_layrnorm"));
        let encoder = at.at("encoder");
        let layer = |layer| Rc::new(Layer::new(&encoder.at("layers").element(layer), config, options));
        Self {
            module,
            embeddings,
            pre_layrnorm,
            encoder: encoder.module(),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            post_layernorm: config.norm(&at.at("post_layernorm")),
            options: options.clone(),
        }
    }

    /// The states before all layers and after each, and what is pooled of the last.
    pub(super) fn forward(&self, pixel_values: &Tensor) -> (Vec<Tensor>, Tensor) {
        let _module = self.module.enter();
        let mut inputs_embeds = self.embeddings.forward(pixel_values);
        inputs_embeds = self.pre_layrnorm.forward(&inputs_embeds);
        let hidden_states = self.run_encoder(inputs_embeds);
        let last_hidden_state = hidden_states[hidden_states.len() - 1].clone();
        let pooled_output = self.post_layernorm.forward(&last_hidden_state.select(1, 0));
        (hidden_states, pooled_output)
    }

    fn run_encoder(&self, inputs_embeds: Tensor) -> Vec<Tensor> {
        let _encoder = self.encoder.enter();
        let mut all = vec![inputs_embeds];
        for layer in &self.layers {
            let hidden_states = &all[all.len() - 1];
            let next = if self.options.checkpoints_layers() {
                let layer = Rc::clone(layer);
                checkpoint(hidden_states, move |states| layer.module.call(states, |states| layer.forward(states, &())))
            } else {
                layer.module.call(hidden_states, |states| layer.forward(states, &()))
            };
            all.push(next);
        }
        all
    }
}
