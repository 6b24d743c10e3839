//! The config of a decoder with rotary embeddings and a gated MLP, as Llama's relatives name its fields.

use std::rc::Rc;

use serde_json::Value;

use crate::job::{FieldError, Fields, ModelingFile};
use crate::model::nn::{Activation, LayerType, Rope, RotaryTables};

use super::bounds::{bound_weights, check_divides, check_rotary};

/// The only mask of a model without windows.
pub(crate) const FULL: &[LayerType] = &[LayerType::FullAttention];
/// The only mask of a model whose layers all have a window.
pub(crate) const SLIDING: &[LayerType] = &[LayerType::SlidingAttention];
/// Both masks, in the order the models make them.
pub(crate) const FULL_AND_SLIDING: &[LayerType] = &[LayerType::FullAttention, LayerType::SlidingAttention];

/// The masks of a model with layers that see a chunk of the row.
pub(crate) const FULL_AND_CHUNKED: &[LayerType] = &[LayerType::FullAttention, LayerType::ChunkedAttention];

/// The masks of a model with layers of linear attention.
pub(crate) const FULL_AND_LINEAR: &[LayerType] = &[LayerType::FullAttention, LayerType::LinearAttention];

/// What a config class fills in.
pub(crate) struct DecoderDefaults {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    /// As many as query heads when `None`.
    pub num_key_value_heads: Option<u64>,
    /// `hidden_size / num_attention_heads` when `None`.
    pub head_dim: Option<u64>,
    pub activation_key: &'static str,
    pub activation: &'static str,
    pub tie_word_embeddings: bool,
    /// Biases on q, k and v whatever the config says.
    pub qkv_bias: bool,
    /// Whether `attention_bias` is a field.
    pub reads_attention_bias: bool,
    /// Whether `mlp_bias` is a field.
    pub reads_mlp_bias: bool,
    /// Norms on q and k.
    pub qk_norm: bool,
    /// Whose code it is in older versions of transformers.
    pub file: ModelingFile,
    /// `max_position_embeddings`
    pub positions: u64,
    /// The key of `norm_eps`.
    pub norm_key: &'static str,
    pub norm_eps: f64,
    pub rope_theta: f64,
    pub pad_token_id: Option<u64>,
}

impl DecoderDefaults {
    /// `LlamaConfig`
    pub(crate) const LLAMA: Self = Self {
        vocab_size: 32000,
        hidden_size: 4096,
        intermediate_size: 11008,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        activation_key: "hidden_act",
        activation: "silu",
        tie_word_embeddings: false,
        qkv_bias: false,
        reads_attention_bias: true,
        reads_mlp_bias: true,
        qk_norm: false,
        file: ModelingFile::Llama,
        positions: 2048,
        norm_key: "rms_norm_eps",
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        pad_token_id: None,
    };
}

/// The config of a decoder.
#[derive(Clone)]
pub(crate) struct DecoderConfig {
    pub vocab_size: u64,
    pub hidden_size: u64,
    pub intermediate_size: u64,
    pub num_hidden_layers: u64,
    pub num_attention_heads: u64,
    pub num_key_value_heads: u64,
    pub head_dim: u64,
    /// How much of each head rotary embeddings turn.
    pub rotary_dim: u64,
    pub activation: Activation,
    pub attention_dropout: f64,
    pub qkv_bias: bool,
    pub o_bias: bool,
    pub mlp_bias: bool,
    pub qk_norm: bool,
    pub tie_word_embeddings: bool,
    pub rope: Rope,
    pub norm_eps: f64,
    /// The row of the embedding that gets no gradient.
    pub pad_token_id: Option<u64>,
    /// The deviation that weights begin with.
    pub initializer_range: f64,
    /// The type of each layer.
    pub layer_types: Rc<[LayerType]>,
    /// The masks that every forward pass makes.
    pub mask_types: &'static [LayerType],
    pub sliding_window: u64,
    /// Whose code it is in older versions of transformers.
    pub file: ModelingFile,
    /// Positions that rotary tables of older versions hold.
    pub positions: u64,
    /// Whether each layer has rotary embeddings; all have where it is `None`.
    pub turned_layers: Option<Rc<[bool]>>,
    /// What scores are multiplied by, where that is not `head_dim ** -0.5`.
    pub attention_multiplier: Option<f64>,
    /// `None` where nothing else is multiplied.
    pub multipliers: Option<Multipliers>,
    /// Dropout on the embeddings.
    pub embedding_dropout: f64,
    /// Whether queries and keys are turned by tables in fp32.
    pub float_tables: bool,
    pub tables: RotaryTables,
    /// Whether queries, keys and values are all there before any is split into heads, without norms.
    pub projects_first: bool,
    /// Whether the functions that make masks are given positions, by which they find packed rows.
    pub masks_read_positions: bool,
    /// Whether layers are given positions; where they are not, nothing of a checkpointed layer keeps those.
    pub hands_positions: bool,
    /// Whether positions that a call does not bring are those behind the tokens in the cache.
    pub counts_seen: bool,
    /// What logits are multiplied by.
    pub logit_scale: Option<f64>,
    /// How each type of layer turns, where that is not `rope`.
    pub layer_ropes: Rc<[(LayerType, Rope)]>,
    /// What the input embeddings are called.
    pub embeddings: &'static str,
    /// Whether logits are cast to fp32.
    pub float_logits: bool,
    /// What the norm behind the layers is called, and whether it is registered behind the rotary embeddings.
    pub last_norm: (&'static str, bool),
    /// Whether layers are given a copy of the embeddings.
    pub keeps_embeddings: bool,
}

/// What activations are multiplied by, as a number: ops that run for 1 too.
#[derive(Clone, Copy)]
pub(crate) struct Multipliers {
    pub embedding: f64,
    /// Of what each branch of a layer adds.
    pub residual: f64,
    /// What logits are divided by.
    pub logits_scaling: f64,
}

impl DecoderConfig {
    /// Reads the fields that the relatives share; all layers have full attention.
    pub(crate) fn read(fields: &Fields, defaults: &DecoderDefaults) -> Result<Self, FieldError> {
        let num_attention_heads = fields.size("num_attention_heads", defaults.num_attention_heads)?;
        let hidden_size = fields.size("hidden_size", defaults.hidden_size)?;
        let num_hidden_layers = fields.layers("num_hidden_layers", defaults.num_hidden_layers)?;
        let attention_bias = defaults.reads_attention_bias && fields.flag("attention_bias", false)?;
        let activation = fields.text(defaults.activation_key, defaults.activation)?;
        let head_dim = head_dim(fields, defaults, hidden_size, num_attention_heads)?;
        let vocab_size = fields.size("vocab_size", defaults.vocab_size)?;
        let positions = fields.size("max_position_embeddings", defaults.positions)?;
        let config = Self {
            vocab_size,
            hidden_size,
            intermediate_size: fields.size("intermediate_size", defaults.intermediate_size)?,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: key_value_heads(fields, defaults, num_attention_heads)?,
            head_dim,
            rotary_dim: head_dim,
            activation: Activation::from_name(defaults.activation_key, activation)?,
            attention_dropout: fields.probability("attention_dropout", 0.0)?,
            qkv_bias: attention_bias || defaults.qkv_bias,
            o_bias: attention_bias,
            mlp_bias: defaults.reads_mlp_bias && fields.flag("mlp_bias", false)?,
            qk_norm: defaults.qk_norm,
            tie_word_embeddings: fields.flag("tie_word_embeddings", defaults.tie_word_embeddings)?,
            rope: Rope::read(fields, defaults.rope_theta, positions)?,
            norm_eps: fields.number(defaults.norm_key, defaults.norm_eps)?,
            pad_token_id: padding_row(fields, defaults.pad_token_id, vocab_size),
            initializer_range: initializer_range(fields)?,
            layer_types: vec![LayerType::FullAttention; num_hidden_layers as usize].into(),
            mask_types: FULL,
            sliding_window: 0,
            file: defaults.file,
            positions,
            turned_layers: None,
            attention_multiplier: None,
            multipliers: None,
            embedding_dropout: 0.0,
            float_tables: false,
            tables: RotaryTables::Twice,
            projects_first: false,
            masks_read_positions: true,
            hands_positions: true,
            counts_seen: true,
            logit_scale: None,
            layer_ropes: Rc::new([]),
            embeddings: "embed_tokens",
            float_logits: false,
            last_norm: ("norm", false),
            keeps_embeddings: false,
        };
        config.check()?;
        Ok(config)
    }

    /// The same with windows: `layer_types` from the config, or the type that `otherwise` gives each layer.
    pub(crate) fn with_layer_types(
        mut self,
        fields: &Fields,
        otherwise: impl Fn(u64) -> LayerType,
    ) -> Result<Self, FieldError> {
        self.layer_types = match fields.texts("layer_types")? {
            Some(names) => layer_types(&names, self.num_hidden_layers, SLIDING[0])?,
            None => (0..self.num_hidden_layers).map(otherwise).collect(),
        };
        Ok(self)
    }

    /// The same with layers that keep a state, which configs call `name`.
    pub(crate) fn with_linear_layers(
        mut self,
        fields: &Fields,
        name: &str,
        otherwise: impl Fn(u64) -> LayerType,
    ) -> Result<Self, FieldError> {
        self.mask_types = FULL_AND_LINEAR;
        self.layer_types = match fields.texts("layer_types")? {
            Some(names) => named_layers(&names, self.num_hidden_layers, (LayerType::LinearAttention, name))?,
            None => (0..self.num_hidden_layers).map(otherwise).collect(),
        };
        Ok(self)
    }

    /// The same with rotary embeddings on a part of each head: `key` in the rotary parameters, or in the config itself.
    pub(crate) fn turning_a_part(self, fields: &Fields, key: &str, default: f64) -> Result<Self, FieldError> {
        let config = self.turning_any_part(fields, key, default)?;
        check_rotary(key, config.rotary_dim)?;
        Ok(config)
    }

    /// The same, of which an odd part is turned with one more.
    pub(crate) fn turning_any_part(mut self, fields: &Fields, key: &str, default: f64) -> Result<Self, FieldError> {
        let parameters = match fields.object("rope_parameters")? {
            Some(parameters) => Some(parameters),
            None => fields.object("rope_scaling")?,
        };
        let inner = parameters.as_ref().and_then(|parameters| parameters.get("partial_rotary_factor"));
        let factor = match inner.or_else(|| fields.get(key)).map(Value::as_f64) {
            None => default,
            Some(Some(factor)) if factor > 0.0 && factor <= 1.0 => factor,
            Some(_) => return Err(FieldError::new(key, "must be a number above 0 and at most 1")),
        };
        self.rotary_dim = (self.head_dim as f64 * factor) as u64;
        Ok(self)
    }

    fn check(&self) -> Result<(), FieldError> {
        check_divides(
            "num_key_value_heads",
            self.num_key_value_heads,
            "num_attention_heads",
            self.num_attention_heads,
        )?;
        check_rotary("head_dim", self.head_dim)?;
        let (hidden, layers) = (self.hidden_size, self.num_hidden_layers);
        bound_weights(&[("head_dim", [self.num_attention_heads, self.head_dim], 1)])?;
        bound_weights(&[
            ("vocab_size", [self.vocab_size, hidden], 2),
            ("intermediate_size", [self.intermediate_size, hidden], 3 * layers),
            ("num_attention_heads", [self.num_attention_heads * self.head_dim, hidden], 4 * layers),
        ])
    }

    /// The window of each layer.
    pub(crate) fn windows(&self) -> Vec<Option<u64>> {
        let has_window = |layer: LayerType| matches!(layer, LayerType::SlidingAttention | LayerType::ChunkedAttention);
        let window = |layer_type: &LayerType| has_window(*layer_type).then_some(self.sliding_window);
        self.layer_types.iter().map(window).collect()
    }

    /// Rotary embeddings of the model: one, or one for each of `layer_ropes`, or none where nothing is turned.
    pub(crate) fn ropes(&self) -> impl Iterator<Item = &Rope> {
        let one = (self.layer_ropes.is_empty() && self.rotary_dim > 0).then_some(&self.rope);
        one.into_iter().chain(self.layer_ropes.iter().map(|(_, rope)| rope))
    }

    /// Which of them a type of layer uses.
    pub(crate) fn rope_of(&self, layer_type: LayerType) -> usize {
        self.layer_ropes.iter().position(|(known, _)| *known == layer_type).unwrap_or(0)
    }

    /// Whether a layer turns its queries and keys by their positions.
    pub(crate) fn turns_layer(&self, layer: usize) -> bool {
        self.turned_layers.as_ref().is_none_or(|turned| turned.get(layer).copied().unwrap_or(true))
    }

    /// Dropout of attention, and what scores are multiplied by.
    pub(crate) fn scores(&self) -> (f64, f64) {
        (self.attention_dropout, self.scaling())
    }

    /// What scores are multiplied by.
    pub(crate) fn scaling(&self) -> f64 {
        self.attention_multiplier.unwrap_or_else(|| (self.head_dim as f64).powf(-0.5))
    }

    /// Width of all queries, and of all keys or all values.
    pub(crate) fn widths(&self) -> (u64, u64) {
        (self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim)
    }
}

/// An explicit `null` means as many as query heads, an absent key the class's default.
fn key_value_heads(fields: &Fields, defaults: &DecoderDefaults, heads: u64) -> Result<u64, FieldError> {
    let key = "num_key_value_heads";
    let default = if fields.0.get(key) == Some(&Value::Null) { None } else { defaults.num_key_value_heads };
    Ok(fields.optional_size(key)?.or(default).unwrap_or(heads))
}

fn head_dim(fields: &Fields, defaults: &DecoderDefaults, hidden_size: u64, heads: u64) -> Result<u64, FieldError> {
    if let Some(head_dim) = fields.optional_size("head_dim")?.or(defaults.head_dim) {
        return Ok(head_dim);
    }
    check_divides("num_attention_heads", heads, "hidden_size", hidden_size)?;
    Ok(hidden_size / heads)
}

/// `pad_token_id`, where it is a row of the embedding.
pub(crate) fn padding_row(fields: &Fields, default: Option<u64>, rows: u64) -> Option<u64> {
    fields.token("pad_token_id", default).filter(|row| *row < rows)
}

/// `initializer_range`, of which 0 counts as absent.
pub(crate) fn initializer_range(fields: &Fields) -> Result<f64, FieldError> {
    let default = 0.02;
    let deviation = fields.number("initializer_range", default)?;
    Ok(if deviation == 0.0 { default } else { deviation })
}

/// Layers of full attention and of the `other` type.
pub(crate) fn layer_types(names: &[&str], layers: u64, other: LayerType) -> Result<Rc<[LayerType]>, FieldError> {
    let name = if other == LayerType::ChunkedAttention { "chunked_attention" } else { "sliding_attention" };
    named_layers(names, layers, (other, name))
}

fn named_layers(
    names: &[&str],
    layers: u64,
    (other, other_name): (LayerType, &str),
) -> Result<Rc<[LayerType]>, FieldError> {
    let key = "layer_types";
    if names.len() as u64 != layers {
        let problem = format!("lists {} layers, num_hidden_layers is {layers}", names.len());
        return Err(FieldError::new(key, problem));
    }
    let parse = |name: &&str| match *name {
        "full_attention" => Ok(LayerType::FullAttention),
        name if name == other_name => Ok(other),
        name => Err(FieldError::new(key, format!("`{name}` is not full_attention or {other_name}"))),
    };
    names.iter().map(parse).collect()
}
