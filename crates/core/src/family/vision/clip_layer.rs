//! The layers of CLIP's and SigLIP's towers, of images and of texts alike (transformers/models/clip/modeling_clip.py and
//! siglip/modeling_siglip.py).

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::model::family::RunOptions;
use crate::model::family::bounds::{Weight, check_divides};
use crate::model::family::encoder::{EncoderLayer, attend_with};
use crate::model::family::image_mlp::ImageMlp;
use crate::model::nn::{Activation, LayerNorm, Linear};
use crate::tensor::Tensor;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::family) enum Kind {
    Clip,
    Siglip,
}

/// What the config classes of all four towers have (transformers 5.17), under their own names.
#[derive(Debug)]
pub(in crate::family) struct LayerConfig {
    pub kind: Kind,
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    activation: Activation,
    layer_norm_eps: f64,
    attention_dropout: f64,
}

impl LayerConfig {
    /// With these defaults of its width, its MLP's, its layers and heads.
    pub(in crate::family) fn read(fields: &Fields, kind: Kind, defaults: [u64; 4]) -> Result<Self, FieldError> {
        let [hidden, inner, layers, heads] = defaults;
        let (activation, eps) = match kind {
            Kind::Clip => ("quick_gelu", 1e-5),
            Kind::Siglip => ("gelu_pytorch_tanh", 1e-6),
        };
        let config = Self {
            kind,
            hidden_size: fields.size("hidden_size", hidden)?,
            intermediate_size: fields.size("intermediate_size", inner)?,
            num_hidden_layers: fields.layers("num_hidden_layers", layers)?,
            num_attention_heads: fields.size("num_attention_heads", heads)?,
            activation: Activation::from_name("hidden_act", fields.text("hidden_act", activation)?)?,
            layer_norm_eps: fields.number("layer_norm_eps", eps)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
        };
        check_divides("num_attention_heads", config.num_attention_heads, "hidden_size", config.hidden_size)?;
        Ok(config)
    }

    /// What bounds its parameters.
    pub(in crate::family) fn weights(&self) -> [Weight; 2] {
        let (hidden, layers) = (self.hidden_size, self.num_hidden_layers);
        [
            ("intermediate_size", [self.intermediate_size, hidden], 2 * layers),
            ("hidden_size", [hidden, hidden], 4 * layers),
        ]
    }

    pub(in crate::family) fn norm(&self, at: &Builder) -> LayerNorm {
        LayerNorm::new(at, self.hidden_size, self.layer_norm_eps)
    }

    pub(in crate::family) fn mlp(&self, at: &Builder) -> ImageMlp {
        ImageMlp::new(at, [self.hidden_size, self.intermediate_size], self.activation)
    }

    /// Those of the encoder at this place.
    pub(in crate::family) fn layers(&self, encoder: &Builder, options: &RunOptions) -> Vec<Rc<Layer>> {
        let layer = |layer| Rc::new(Layer::new(&encoder.at("layers").element(layer), self, options));
        (0..self.num_hidden_layers).map(layer).collect()
    }
}

/// What a layer is given beside the states: of images neither.
#[derive(Clone, Default)]
pub(in crate::family) struct LayerCall {
    pub mask: Option<Tensor>,
    pub is_causal: bool,
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
    fn new(at: &Builder, config: &LayerConfig, options: &RunOptions) -> Self {
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

    fn forward(&self, hidden_states: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let [rows, tokens, width] = [0, 1, 2].map(|at| hidden_states.size(at));
        let projected = [&self.q_proj, &self.k_proj, &self.v_proj].map(|linear| linear.forward(hidden_states));
        let shape = [rows, tokens, self.heads, width / self.heads];
        let states = projected.map(|states| states.view(&shape).transpose(1, 2));
        let dropout = (self.dropout, Some(DType::Float32));
        let (mut attn_output, _weights) =
            attend_with(states.each_ref(), (call.mask.as_ref(), call.is_causal), dropout, &self.options);
        attn_output = attn_output.reshape(&[rows, tokens, width]).contiguous();
        self.out_proj.forward(&attn_output)
    }
}

pub(in crate::family) struct Layer {
    module: Module,
    self_attn: Attention,
    layer_norm1: LayerNorm,
    mlp: ImageMlp,
    layer_norm2: LayerNorm,
}

impl Layer {
    fn new(at: &Builder, config: &LayerConfig, options: &RunOptions) -> Self {
        let norm = |name| config.norm(&at.at(name));
        let new_mlp = || config.mlp(&at.at("mlp"));
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
    type Call = LayerCall;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, residual: &Tensor, call: &LayerCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.layer_norm1.forward(residual);
        hidden_states = self.self_attn.forward(&hidden_states, call);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.layer_norm2.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        &residual + &hidden_states
    }
}
