//! The switches of the generic decoder, and how each model type sets them (transformers 5.17, models/*/modeling_*.py).

use crate::spec::{FieldError, Fields};

/// How a norm is computed, which decides what it keeps for backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormKind {
    /// Llama's: the product with the weight in the model's dtype.
    Rms,
    /// OLMo 2's: the product with the weight in fp32.
    RmsInFloat32,
    /// Gemma's: fp32 to the end, with a weight centred on 1.
    RmsCentred,
    /// `nn.LayerNorm`
    Layer,
    /// Cohere's: composite, in fp32, without bias.
    LayerInFloat32,
    /// OLMo's: in fp32, without weight and bias.
    Unweighted,
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

/// Rotary embeddings.
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
    /// A weight over all heads, before they are told apart.
    Whole,
    /// A weight for each head.
    EachHead,
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

/// The switches.
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
    /// Whether embeddings, branches and logits are multiplied.
    pub scales: [bool; 3],
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
const PARTIAL: Rotary = Rotary { factor: 0.5, joins: true, ..ROTARY };
const NONE: (&str, f64) = ("", 0.0);

/// Llama's.
const LLAMA: Shape = Shape {
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
    scales: [false; 3],
    embedding_dropout: NONE,
    residual_dropout: NONE,
    attention_dropout: ("attention_dropout", 0.0),
    activation: (&["hidden_act"], "silu"),
    tied: false,
};

/// GPT-2's descendants without a gate: layer norms and biases everywhere.
const PLAIN: Shape = Shape {
    norm: NormKind::Layer,
    mlp: MlpKind::Plain,
    qkv_bias: true,
    o_bias: true,
    mlp_bias: true,
    activation: (&["hidden_act", "activation_function"], "gelu"),
    ..LLAMA
};

/// GPT-J's: both branches from one norm, scores in fp32.
const GPTJ: Shape = Shape {
    order: Order::Parallel,
    names: Names { qkv: LLAMA.names.qkv, o: "out_proj", up: "fc_in", down: "fc_out" },
    qkv_bias: false,
    o_bias: false,
    head_bias: true,
    scores: Scores::Float32,
    positions: Positions::Rotary(PARTIAL),
    embedding_dropout: ("embd_pdrop", 0.0),
    residual_dropout: ("resid_pdrop", 0.0),
    attention_dropout: ("attn_pdrop", 0.0),
    activation: (&["activation_function"], "gelu_new"),
    ..PLAIN
};

/// The switches of `model_type` under the config's flags; `None` for a type that it does not stand in for.
///
/// # Errors
/// When a flag is not of its type, or asks for what no switch does.
pub(super) fn shape(model_type: &str, fields: &Fields) -> Result<Option<Shape>, FieldError> {
    let flag = |key: &str, default: bool| fields.flag(key, default);
    let attention_bias = |default: bool| flag("attention_bias", default);
    let shape = match model_type {
        "gemma" => Shape {
            norm: NormKind::RmsCentred,
            scales: [true, false, false],
            activation: (&["hidden_activation", "hidden_act"], "gelu_pytorch_tanh"),
            tied: true,
            ..biased(attention_bias(false)?, false)
        },
        "granite" => Shape { scales: [true; 3], ..biased(attention_bias(false)?, flag("mlp_bias", false)?) },
        "helium" => Shape {
            positions: Positions::Rotary(Rotary { interleaves: true, ..ROTARY }),
            ..biased(attention_bias(false)?, flag("mlp_bias", false)?)
        },
        "seed_oss" => Shape {
            qkv_bias: attention_bias(true)?,
            o_bias: flag("attention_out_bias", false)?,
            residual_dropout: ("residual_dropout", 0.1),
            attention_dropout: ("attention_dropout", 0.1),
            ..biased(false, flag("mlp_bias", false)?)
        },
        "smollm3" => Shape { tied: true, ..biased(attention_bias(false)?, flag("mlp_bias", false)?) },
        "ernie4_5" => {
            let bias = flag("use_bias", false)?;
            let rotary = Rotary { in_float32: true, interleaves: true, ..ROTARY };
            Shape { positions: Positions::Rotary(rotary), tied: true, ..biased(bias, bias) }
        }
        "ministral" | "ministral3" | "cwm" => LLAMA,
        "qwen2_vl_text" | "qwen2_5_vl_text" => Shape { qkv_bias: true, ..LLAMA },
        "qwen3_vl_text" => Shape { qk_norm: QkNorm::PerHead, ..biased(attention_bias(false)?, false) },
        "olmo" => Shape {
            norm: NormKind::Unweighted,
            positions: Positions::Rotary(Rotary { in_float32: true, ..ROTARY }),
            ..biased(attention_bias(false)?, false)
        },
        "olmo2" | "olmo3" => Shape {
            norm: NormKind::RmsInFloat32,
            order: Order::PostNorm,
            qk_norm: QkNorm::Whole,
            positions: Positions::Rotary(Rotary { in_float32: true, ..ROTARY }),
            ..biased(attention_bias(false)?, false)
        },
        "exaone4" => Shape { order: Order::PostNorm, qk_norm: QkNorm::PerHead, ..LLAMA },
        "cohere" | "cohere2" => Shape {
            norm: NormKind::LayerInFloat32,
            order: Order::Parallel,
            qk_norm: if flag("use_qk_norm", false)? { QkNorm::EachHead } else { QkNorm::Off },
            positions: Positions::Rotary(Rotary { in_float32: true, ..ROTARY }),
            scales: [false, false, true],
            tied: true,
            ..biased(attention_bias(false)?, false)
        },
        "glm" | "glm4" | "glm4v_text" => Shape {
            mlp: MlpKind::GatedFused,
            order: if model_type == "glm" { Order::PreNorm } else { Order::Sandwich },
            qkv_bias: model_type == "glm4v_text" || attention_bias(true)?,
            positions: Positions::Rotary(Rotary { interleaves: true, ..PARTIAL }),
            ..LLAMA
        },
        "stablelm" => stablelm(fields)?,
        "arcee" => Shape {
            mlp: MlpKind::Plain,
            activation: (&["hidden_act"], "relu2"),
            ..biased(attention_bias(false)?, flag("mlp_bias", false)?)
        },
        _ => return plain(model_type, fields),
    };
    Ok(Some(shape))
}

/// Llama with these biases on its attention and its MLP.
const fn biased(attention: bool, mlp: bool) -> Shape {
    Shape { qkv_bias: attention, o_bias: attention, mlp_bias: mlp, ..LLAMA }
}

fn stablelm(fields: &Fields) -> Result<Shape, FieldError> {
    if fields.flag("qk_layernorm", false)? {
        return Err(FieldError::new("qk_layernorm", "norms of their own for each head are not simulated"));
    }
    Ok(Shape {
        norm: NormKind::Layer,
        order: if fields.flag("use_parallel_residual", false)? { Order::Parallel } else { Order::PreNorm },
        qkv_bias: fields.flag("use_qkv_bias", false)?,
        positions: Positions::Rotary(Rotary { factor: 0.25, ..PARTIAL }),
        residual_dropout: ("hidden_dropout", 0.0),
        ..LLAMA
    })
}

/// The types whose MLP has no gate.
fn plain(model_type: &str, fields: &Fields) -> Result<Option<Shape>, FieldError> {
    let flag = |key: &str, default: bool| fields.flag(key, default);
    let shape = match model_type {
        "gpt_neox" => Shape {
            order: if flag("use_parallel_residual", true)? { Order::ParallelTwoNorms } else { Order::PreNorm },
            names: Names { qkv: &["query_key_value"], o: "dense", up: "dense_h_to_4h", down: "dense_4h_to_h" },
            qkv_bias: flag("attention_bias", true)?,
            o_bias: flag("attention_bias", true)?,
            positions: Positions::Rotary(Rotary { factor: 0.25, ..PARTIAL }),
            residual_dropout: ("hidden_dropout", 0.0),
            embedding_dropout: ("hidden_dropout", 0.0),
            ..PLAIN
        },
        "phi" if flag("qk_layernorm", false)? => {
            return Err(FieldError::new("qk_layernorm", "norms on queries and keys are not simulated for phi"));
        }
        "phi" => Shape {
            order: Order::Parallel,
            names: Names { qkv: LLAMA.names.qkv, o: "dense", up: "fc1", down: "fc2" },
            head_bias: true,
            positions: Positions::Rotary(PARTIAL),
            residual_dropout: ("resid_pdrop", 0.0),
            embedding_dropout: ("embd_pdrop", 0.0),
            activation: (&["hidden_act"], "gelu_new"),
            ..PLAIN
        },
        "starcoder2" => {
            let bias = flag("use_bias", true)?;
            Shape {
                names: Names { qkv: LLAMA.names.qkv, o: "o_proj", up: "c_fc", down: "c_proj" },
                qkv_bias: bias,
                o_bias: bias,
                mlp_bias: bias,
                residual_dropout: ("residual_dropout", 0.0),
                embedding_dropout: ("embedding_dropout", 0.0),
                activation: (&["hidden_act"], "gelu_pytorch_tanh"),
                tied: true,
                ..PLAIN
            }
        }
        "opt" => opt(fields)?,
        "falcon" => falcon(fields)?,
        "gpt_bigcode" => Shape {
            names: Names { qkv: &["c_attn"], o: "c_proj", up: "c_fc", down: "c_proj" },
            key_value_heads: flag("multi_query", true)?.then_some(1),
            positions: Positions::Learned(0),
            embedding_dropout: ("embd_pdrop", 0.1),
            residual_dropout: ("resid_pdrop", 0.1),
            attention_dropout: ("attn_pdrop", 0.1),
            activation: (&["activation_function"], "gelu_pytorch_tanh"),
            tied: true,
            ..PLAIN
        },
        "gptj" => GPTJ,
        "codegen" => Shape { names: Names { qkv: &["qkv_proj"], ..GPTJ.names }, ..GPTJ },
        "gpt_neo" => Shape {
            names: Names { qkv: LLAMA.names.qkv, o: "out_proj", up: "c_fc", down: "c_proj" },
            qkv_bias: false,
            scores: Scores::Float32Masked,
            positions: Positions::Learned(0),
            embedding_dropout: ("embed_dropout", 0.0),
            residual_dropout: ("resid_dropout", 0.0),
            activation: (&["activation_function"], "gelu_new"),
            tied: true,
            ..PLAIN
        },
        "bloom" => Shape {
            names: Names { qkv: &["query_key_value"], o: "dense", up: "dense_h_to_4h", down: "dense_4h_to_h" },
            scores: Scores::Alibi,
            positions: Positions::InScores,
            embedding_norm: true,
            residual_dropout: ("hidden_dropout", 0.0),
            activation: (&[], "gelu"),
            tied: true,
            ..PLAIN
        },
        _ => return Ok(None),
    };
    Ok(Some(shape))
}

fn opt(fields: &Fields) -> Result<Shape, FieldError> {
    if !fields.flag("do_layer_norm_before", true)? {
        return Err(FieldError::new("do_layer_norm_before", "norms behind the branches are not simulated for opt"));
    }
    let hidden = fields.optional_size("hidden_size")?;
    if fields.optional_size("word_embed_proj_dim")?.is_some_and(|width| Some(width) != hidden) {
        return Err(FieldError::new(
            "word_embed_proj_dim",
            "embeddings of another width than the model's are not simulated",
        ));
    }
    if !fields.flag("layer_norm_elementwise_affine", true)? || fields.flag("_remove_final_layer_norm", false)? {
        return Err(FieldError::new(
            "layer_norm_elementwise_affine",
            "only layer norms with weights are simulated for opt",
        ));
    }
    let bias = fields.flag("enable_bias", true)?;
    Ok(Shape {
        names: Names { qkv: LLAMA.names.qkv, o: "out_proj", up: "fc1", down: "fc2" },
        qkv_bias: bias,
        o_bias: bias,
        mlp_bias: bias,
        // `OPTLearnedPositionalEmbedding` has two rows more.
        positions: Positions::Learned(2),
        residual_dropout: ("dropout", 0.1),
        activation: (&["activation_function"], "relu"),
        tied: true,
        ..PLAIN
    })
}

fn falcon(fields: &Fields) -> Result<Shape, FieldError> {
    if fields.flag("alibi", false)? {
        return Err(FieldError::new("alibi", "Falcon's ALiBi attention is not simulated"));
    }
    let new = fields.flag("new_decoder_architecture", false)?;
    let two_norms = fields.get("num_ln_in_parallel_attn").map_or(new, |count| count.as_u64() == Some(2));
    let bias = fields.flag("bias", false)?;
    let multi_query = !new && fields.flag("multi_query", true)?;
    Ok(Shape {
        order: match (new, fields.flag("parallel_attn", true)?) {
            (true, _) if two_norms => Order::ParallelTwoNorms,
            (true, _) | (false, true) => Order::Parallel,
            (false, false) => Order::PreNorm,
        },
        names: Names { qkv: &["query_key_value"], o: "dense", up: "dense_h_to_4h", down: "dense_4h_to_h" },
        qkv_bias: bias,
        o_bias: bias,
        mlp_bias: bias,
        key_value_heads: match (new, multi_query) {
            (true, _) => fields.optional_size("num_kv_heads")?,
            (false, true) => Some(1),
            (false, false) => None,
        },
        scores: if multi_query { Scores::BroadcastKeys } else { Scores::RepeatedKeys },
        residual_dropout: ("hidden_dropout", 0.0),
        activation: (&["activation"], "gelu"),
        tied: true,
        ..PLAIN
    })
}
