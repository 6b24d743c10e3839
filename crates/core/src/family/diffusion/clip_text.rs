//! CLIP's text model (transformers/models/clip/modeling_clip.py, `CLIPTextModel` and `CLIPTextModelWithProjection`), frozen, as the
//! pipelines of diffusers have it.

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::job::Attention;
use crate::model::family::image_mlp::ImageMlp;
use crate::model::nn::{Activation, Embedding, LayerNorm, Linear};
use crate::op::{AttentionCall, Gelu, arange, full, scaled_dot_product_attention};
use crate::tensor::Tensor;

const VOCABULARY: u64 = 49408;
/// `max_position_embeddings`: no prompt is longer.
pub(super) const CLIP_POSITIONS: u64 = 77;
const EPS: f64 = 1e-5;

/// What a published text model has.
#[derive(Clone, Copy)]
pub(super) struct ClipSizes {
    pub width: u64,
    heads: u64,
    layers: u64,
    activation: Activation,
}

/// That of ViT-L/14 (OpenAI), of ViT-H/14 without its last layer (Stable Diffusion 2), and of ViT-bigG/14 (OpenCLIP).
pub(super) const VIT_L: ClipSizes = ClipSizes { width: 768, heads: 12, layers: 12, activation: Activation::QuickGelu };
pub(super) const VIT_H: ClipSizes =
    ClipSizes { width: 1024, heads: 16, layers: 23, activation: Activation::Gelu(Gelu::Exact) };
pub(super) const VIT_G: ClipSizes =
    ClipSizes { width: 1280, heads: 20, layers: 32, activation: Activation::Gelu(Gelu::Exact) };

struct Layer {
    module: Module,
    attention: Module,
    projections: [Linear; 3],
    out_proj: Linear,
    layer_norm1: LayerNorm,
    mlp: ImageMlp,
    layer_norm2: LayerNorm,
    heads: u64,
    backend: Attention,
}

impl Layer {
    fn new(at: &Builder, sizes: ClipSizes, backend: Attention) -> Self {
        let (width, attention) = (sizes.width, at.at("self_attn"));
        let linear = |name: &str| Linear::new(&attention.at(name), width, width, true);
        let norm = |name: &str| LayerNorm::new(&at.at(name), width, EPS);
        let [k_proj, v_proj, q_proj] = ["k_proj", "v_proj", "q_proj"].map(linear);
        Self {
            module: at.module(),
            attention: attention.module(),
            projections: [q_proj, k_proj, v_proj],
            out_proj: linear("out_proj"),
            layer_norm1: norm("layer_norm1"),
            mlp: ImageMlp::new(&at.at("mlp"), [width, 4 * width], sizes.activation),
            layer_norm2: norm("layer_norm2"),
            heads: sizes.heads,
            backend,
        }
    }

    fn attend(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.attention.enter();
        let [rows, tokens, width] = [0, 1, 2].map(|at| hidden_states.size(at));
        let split = |linear: &Linear| {
            linear.forward(hidden_states).view(&[rows, tokens, self.heads, width / self.heads]).transpose(1, 2)
        };
        let [query, key, value] = self.projections.each_ref().map(split);
        let scale = ((width / self.heads) as f64).sqrt().recip();
        let backend = self.backend;
        let call = AttentionCall { mask: None, dropout: 0.0, is_causal: true, scale, enable_gqa: false, backend };
        let attended = scaled_dot_product_attention(&query, &key, &value, call);
        let attended = attended.transpose(1, 2).contiguous().reshape(&[rows, tokens, width]);
        self.out_proj.forward(&attended)
    }

    fn forward(&self, residual: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.layer_norm1.forward(residual);
        hidden_states = self.attend(&hidden_states);
        hidden_states = residual + &hidden_states;
        let residual = hidden_states.clone();
        hidden_states = self.layer_norm2.forward(&hidden_states);
        hidden_states = self.mlp.forward(&hidden_states);
        &residual + &hidden_states
    }
}

/// What a text model returns.
pub(super) struct ClipOutput {
    /// `[0]`: what is projected of the whole prompt, or the states of all tokens.
    pub first: Tensor,
    /// `pooler_output` of a model without projection.
    pub pooled: Tensor,
    /// All states, where they were asked for.
    states: Vec<Tensor>,
    _last_hidden_state: Tensor,
}

impl ClipOutput {
    /// `hidden_states[-2]`; all else goes.
    pub(super) fn into_penultimate(self) -> Tensor {
        let at = self.states.len().saturating_sub(2);
        self.states.into_iter().nth(at).unwrap_or(self.first)
    }
}

pub(super) struct ClipTextModel {
    module: Module,
    embeddings: Module,
    token_embedding: Embedding,
    position_embedding: Embedding,
    position_ids: Tensor,
    layers: Vec<Layer>,
    final_layer_norm: LayerNorm,
    text_projection: Option<Linear>,
}

impl ClipTextModel {
    pub(super) fn new(at: &Builder, sizes: ClipSizes, projects: bool, backend: Attention) -> Self {
        let whole = at;
        let at = if projects { whole.at("text_model") } else { whole.clone() };
        let (place, width, layers) = (at.at("embeddings"), sizes.width, at.at("encoder").at("layers"));
        Self {
            module: whole.module(),
            embeddings: place.module(),
            token_embedding: Embedding::new(&place.at("token_embedding"), VOCABULARY, width, None),
            position_embedding: Embedding::new(&place.at("position_embedding"), CLIP_POSITIONS, width, None),
            position_ids: place.buffer(&[1, CLIP_POSITIONS], DType::Int64, Vec::new),
            layers: (0..sizes.layers).map(|layer| Layer::new(&layers.element(layer), sizes, backend)).collect(),
            final_layer_norm: LayerNorm::new(&at.at("final_layer_norm"), width, EPS),
            text_projection: projects.then(|| Linear::new(&whole.at("text_projection"), width, width, false)),
        }
    }

    fn embed(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.embeddings.enter();
        let inputs_embeds = self.token_embedding.forward(input_ids);
        let positions = self.position_ids.narrow(1, 0..input_ids.size(1));
        &inputs_embeds + &self.position_embedding.forward(&positions)
    }

    /// With `output_hidden_states` if `keeps_states`.
    pub(super) fn forward(&self, input_ids: &Tensor, keeps_states: bool) -> ClipOutput {
        let _module = self.module.enter();
        let embedded = self.embed(input_ids);
        let mut states = Vec::new();
        let mut encoded = embedded.clone();
        for layer in &self.layers {
            let next = layer.forward(&encoded);
            let before = std::mem::replace(&mut encoded, next);
            if keeps_states {
                states.push(before);
            }
        }
        if keeps_states {
            states.push(encoded.clone());
        }
        let last_hidden_state = self.final_layer_norm.forward(&encoded);
        let pooled = pool_prompt(&last_hidden_state, input_ids);
        drop((encoded, embedded));
        let (first, pooled) = match &self.text_projection {
            Some(projection) => (projection.forward(&pooled), pooled),
            None => (last_hidden_state.clone(), pooled),
        };
        ClipOutput { first, pooled, states, _last_hidden_state: last_hidden_state }
    }
}

/// The state of the token that ends the prompt.
fn pool_prompt(last_hidden_state: &Tensor, input_ids: &Tensor) -> Tensor {
    let (rows, context) = (last_hidden_state.size(0), last_hidden_state.context());
    let _rows = arange(context, rows);
    let _ends = {
        let _ids = input_ids.to(DType::Int32);
        full(context, "argmax.default", &[rows], DType::Int64)
    };
    full(context, "index.Tensor", &[rows, last_hidden_state.size(2)], last_hidden_state.dtype())
}
