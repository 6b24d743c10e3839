//! The switches of the generic decoder, and how each model type sets them (transformers 5.17, models/*/modeling_*.py).

use crate::job::{FieldError, Fields};

use super::plain::plain_shape;

/// How a norm is computed, which decides what it keeps for backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormKind {
    /// Llama's: the product with the weight in the model's dtype.
    Rms,
    /// Gemma's: fp32 to the end, with a weight centred on 1.
    RmsCentred,
    /// `nn.LayerNorm`
    Layer,
}

/// What a layer adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Each branch behind a norm.
    PreNorm,
    /// Both branches from one norm.
    Parallel,
    /// Both branches from the layer's input, each behind a norm of its own.
    ParallelTwoNorms,
    /// A norm behind each branch.
    PostNorm,
    /// A norm before and behind each branch.
    Sandwich,
}

/// The MLP's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MlpKind {
    /// gate, up and down.
    Gated,
    /// gate and up in one, and down.
    GatedFused,
    /// up and down.
    Plain,
}

/// How scores are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scores {
    /// By the attention that the job names.
    Interface,
    /// As [`Interface`](Self::Interface), but keys of one head go to SDPA as they are, which only its math path takes.
    BroadcastKeys,
    /// As [`Interface`](Self::Interface), with keys and values copied to all query heads before.
    RepeatedKeys,
    /// In fp32, whatever the job names: GPT-J's and its kin's class has no SDPA.
    Float32,
    /// In fp32, with the causal mask from a buffer of all positions in each layer.
    Float32Masked,
    /// Bloom's: `baddbmm` on the ALiBi tensor, softmax in fp32.
    Alibi,
}

/// What tells positions apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Positions {
    Rotary(Rotary),
    /// A learned table of the config's positions and so many more.
    Learned(u64),
    /// The scores do.
    InScores,
}

/// Rotary embeddings, where they differ from Llama's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rotary {
    /// The part of each head that is turned, where the config does not say.
    pub factor: f64,
    /// Whether queries and keys are turned in fp32.
    pub in_float32: bool,
    /// Whether the turned part is joined with the rest of the head even where there is none.
    pub joins: bool,
    /// Whether each layer makes tables of its own, with every number twice in a row.
    pub interleaves: bool,
}

/// Norms on queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QkNorm {
    Off,
    /// One weight of a head's size.
    PerHead,
}

/// Names of the modules, as LoRA's targets say them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// One for all of query, key and value, or three.
    pub qkv: &'static [&'static str],
    pub o: &'static str,
    pub up: &'static str,
    pub down: &'static str,
}

/// How a decoder's class is built and run; the fields' defaults are Llama's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub norm: NormKind,
    pub order: Order,
    pub mlp: MlpKind,
    pub names: Names,
    pub qkv_bias: bool,
    pub o_bias: bool,
    pub mlp_bias: bool,
    pub head_bias: bool,
    /// Key-value heads that the config does not name itself.
    pub key_value_heads: Option<u64>,
    pub scores: Scores,
    pub positions: Positions,
    pub qk_norm: QkNorm,
    /// Whether the embeddings are normed.
    pub embedding_norm: bool,
    /// Whether embeddings are multiplied by a number.
    pub scales_embeddings: bool,
    /// Keys of the dropout on embeddings and on both branches, and what they are by default.
    pub embedding_dropout: (&'static str, f64),
    pub residual_dropout: (&'static str, f64),
    /// Key of the dropout on attention weights.
    pub attention_dropout: (&'static str, f64),
    pub activation: (&'static [&'static str], &'static str),
    /// `tie_word_embeddings` where the config does not say.
    pub tied: bool,
}

const ROTARY: Rotary = Rotary { factor: 1.0, in_float32: false, joins: false, interleaves: false };
pub(super) const PARTIAL: Rotary = Rotary { factor: 0.5, joins: true, ..ROTARY };
const NONE: (&str, f64) = ("", 0.0);

/// Llama's, which the others are told by their differences from.
pub(super) const LLAMA: Shape = Shape {
    norm: NormKind::Rms,
    order: Order::PreNorm,
    mlp: MlpKind::Gated,
    names: Names { qkv: &["q_proj", "k_proj", "v_proj"], o: "o_proj", up: "up_proj", down: "down_proj" },
    qkv_bias: false,
    o_bias: false,
    mlp_bias: false,
    head_bias: false,
    key_value_heads: None,
    scores: Scores::Interface,
    positions: Positions::Rotary(ROTARY),
    qk_norm: QkNorm::Off,
    embedding_norm: false,
    scales_embeddings: false,
    embedding_dropout: NONE,
    residual_dropout: NONE,
    attention_dropout: ("attention_dropout", 0.0),
    activation: (&["hidden_act"], "silu"),
    tied: false,
};

/// The switches of `model_type` under the config's flags; `None` for a type that it does not stand in for.
///
/// # Errors
/// When a flag is not of its type, or asks for what no switch does.
pub(super) fn shape_of_type(model_type: &str, fields: &Fields) -> Result<Option<Shape>, FieldError> {
    let flag = |key: &str, default: bool| fields.flag(key, default);
    let attention_bias = |default: bool| flag("attention_bias", default);
    let shape = match model_type {
        "gemma" => Shape {
            norm: NormKind::RmsCentred,
            scales_embeddings: true,
            activation: (&["hidden_activation", "hidden_act"], "gelu_pytorch_tanh"),
            tied: true,
            ..biased_shape(attention_bias(false)?, false)
        },
        "helium" => Shape {
            positions: Positions::Rotary(Rotary { interleaves: true, ..ROTARY }),
            ..biased_shape(attention_bias(false)?, flag("mlp_bias", false)?)
        },
        "seed_oss" => Shape {
            qkv_bias: attention_bias(true)?,
            o_bias: flag("attention_out_bias", false)?,
            residual_dropout: ("residual_dropout", 0.1),
            attention_dropout: ("attention_dropout", 0.1),
            ..biased_shape(false, flag("mlp_bias", false)?)
        },
        "ernie4_5" => {
            let bias = flag("use_bias", false)?;
            let rotary = Rotary { in_float32: true, interleaves: true, ..ROTARY };
            Shape { positions: Positions::Rotary(rotary), tied: true, ..biased_shape(bias, bias) }
        }
        "ministral" | "ministral3" | "cwm" => LLAMA,
        "qwen2_vl_text" | "qwen2_5_vl_text" => Shape { qkv_bias: true, ..LLAMA },
        "qwen3_vl_text" => Shape { qk_norm: QkNorm::PerHead, ..biased_shape(attention_bias(false)?, false) },
        "exaone4" => Shape { order: Order::PostNorm, qk_norm: QkNorm::PerHead, ..LLAMA },
        // GLM-4's layers.
        "glm4v_text" => Shape {
            mlp: MlpKind::GatedFused,
            order: Order::Sandwich,
            qkv_bias: true,
            positions: Positions::Rotary(Rotary { interleaves: true, ..PARTIAL }),
            ..LLAMA
        },
        "arcee" => Shape {
            mlp: MlpKind::Plain,
            activation: (&["hidden_act"], "relu2"),
            ..biased_shape(attention_bias(false)?, flag("mlp_bias", false)?)
        },
        _ => return plain_shape(model_type, fields),
    };
    Ok(Some(shape))
}

/// Llama with these biases on its attention and its MLP.
const fn biased_shape(attention: bool, mlp: bool) -> Shape {
    Shape { qkv_bias: attention, o_bias: attention, mlp_bias: mlp, ..LLAMA }
}
