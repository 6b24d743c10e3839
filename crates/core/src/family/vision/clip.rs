//! CLIP's tower (transformers/models/clip/modeling_clip.py, `CLIPVisionModel`), and SigLIP's, which has no token for the whole image.

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

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Clip,
    Siglip,
}

/// What `CLIPVisionConfig` and `SiglipVisionConfig` have (transformers 5.17), under their own names.
#[derive(Debug)]
pub(super) struct ClipConfig {
    kind: Kind,
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
    pub(super) fn read(fields: &Fields, image: Image, kind: Kind) -> Result<Self, FieldError> {
        let (activation, eps) = match kind {
            Kind::Clip => ("quick_gelu", 1e-5),
            Kind::Siglip => ("gelu_pytorch_tanh", 1e-6),
        };
        let config = Self {
            kind,
            image,
            hidden_size: fields.size("hidden_size", 768)?,
            intermediate_size: fields.size("intermediate_size", 3072)?,
            num_hidden_layers: fields.layers("num_hidden_layers", 12)?,
            num_attention_heads: fields.size("num_attention_heads", 12)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", activation)?)?,
            layer_norm_eps: fields.number("layer_norm_eps", eps)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        bound_weights(&[
            ("image_size", [config.positions(), hidden], 1),
            ("patch_size", [image.channels * image.patch[0] * image.patch[1], hidden], 1),
            ("intermediate_size", [config.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ])?;
        Ok(config)
    }

    /// Patches, and where there is one the token for the whole image.
    fn positions(&self) -> u64 {
        self.image.patches() + u64::from(self.kind == Kind::Clip)
    }

    pub(super) fn norm(&self, at: &Builder) -> LayerNorm {
        LayerNorm::new(at, self.hidden_size, self.layer_norm_eps)
    }
}

pub(super) struct Embeddings {
    module: Module,
    class_embedding: Option<Tensor>,
    patch_embedding: Conv2d,
    position_embedding: Embedding,
    position_ids: Tensor,
    options: RunOptions,
}

impl Embeddings {
    pub(super) fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let (module, slot, width, image) = (at.module(), at.next_slot(), config.hidden_size, config.image);
        let new_conv = match config.kind {
            Kind::Clip => Conv2d::without_bias,
            Kind::Siglip => Conv2d::new,
        };
        let patch_embedding = new_conv(&at.at("patch_embedding"), image.channels, width, image.patch);
        let positions = config.positions();
        let position_embedding = Embedding::new(&at.at("position_embedding"), positions, width, None);
        let class_embedding = (config.kind == Kind::Clip)
            .then(|| at.parameter_listed_at(slot, "class_embedding", &[width], Init::Normal));
        let position_ids = at.buffer(&[1, positions], DType::Int64, Vec::new);
        Self { module, class_embedding, patch_embedding, position_embedding, position_ids, options: options.clone() }
    }

    pub(super) fn forward(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let patch_embeds = {
            let pixel_values = pixel_values.to(self.patch_embedding.weight().dtype());
            require_patch_grads(&self.options, self.patch_embedding.forward(&pixel_values))
        };
        let [rows, width, height, wide] = [0, 1, 2, 3].map(|at| patch_embeds.size(at));
        let patch_embeds = patch_embeds.view(&[rows, width, height * wide]).transpose(1, 2);
        let embeddings = match &self.class_embedding {
            Some(class_embedding) => cat(&[&class_embedding.expand(&[rows, 1, width]), &patch_embeds], 1),
            None => patch_embeds.clone(),
        };
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

pub(super) struct Layer {
    module: Module,
    self_attn: Attention,
    layer_norm1: LayerNorm,
    mlp: ImageMlp,
    layer_norm2: LayerNorm,
}

impl Layer {
    pub(super) fn new(at: &Builder, config: &ClipConfig, options: &RunOptions) -> Self {
        let norm = |name| config.norm(&at.at(name));
        let new_mlp =
            || ImageMlp::new(&at.at("mlp"), [config.hidden_size, config.intermediate_size], config.activation);
        let new_attention = || Attention::new(&at.at("self_attn"), config, options);
        let module = at.module();
        if config.kind == Kind::Siglip {
            let (layer_norm1, self_attn) = (norm("layer_norm1"), new_attention());
            let (layer_norm2, mlp) = (norm("layer_norm2"), new_mlp());
            return Self { module, self_attn, layer_norm1, mlp, layer_norm2 };
        }
        let (self_attn, layer_norm1) = (new_attention(), norm("layer_norm1"));
        let (mlp, layer_norm2) = (new_mlp(), norm("layer_norm2"));
        Self { module, self_attn, layer_norm1, mlp, layer_norm2 }
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
