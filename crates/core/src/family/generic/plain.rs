//! The switches of the generic decoder for the types whose MLP has no gate, GPT-2's descendants.

use crate::job::{FieldError, Fields};

use super::shape::{LLAMA, MlpKind, Names, NormKind, Order, PARTIAL, Positions, Scores, Shape};

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

const GPT_NEO: Shape = Shape {
    names: Names { qkv: LLAMA.names.qkv, o: "out_proj", up: "c_fc", down: "c_proj" },
    qkv_bias: false,
    scores: Scores::Float32Masked,
    positions: Positions::Learned(0),
    embedding_dropout: ("embed_dropout", 0.0),
    residual_dropout: ("resid_dropout", 0.0),
    activation: (&["activation_function"], "gelu_new"),
    tied: true,
    ..PLAIN
};

const BLOOM: Shape = Shape {
    names: Names { qkv: &["query_key_value"], o: "dense", up: "dense_h_to_4h", down: "dense_4h_to_h" },
    scores: Scores::Alibi,
    positions: Positions::InScores,
    embedding_norm: true,
    residual_dropout: ("hidden_dropout", 0.0),
    activation: (&[], "gelu"),
    tied: true,
    ..PLAIN
};

/// The types whose MLP has no gate.
pub(super) fn plain_shape(model_type: &str, fields: &Fields) -> Result<Option<Shape>, FieldError> {
    let shape = match model_type {
        "falcon" => falcon_shape(fields)?,
        "gptj" => GPTJ,
        "codegen" => Shape { names: Names { qkv: &["qkv_proj"], ..GPTJ.names }, ..GPTJ },
        "gpt_neo" => GPT_NEO,
        "bloom" => BLOOM,
        _ => return Ok(None),
    };
    Ok(Some(shape))
}

fn falcon_shape(fields: &Fields) -> Result<Shape, FieldError> {
    if fields.flag("alibi", false)? {
        return Err(FieldError::unsimulated("alibi", "Falcon's ALiBi attention is not simulated"));
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
        names: BLOOM.names,
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
