//! The switches of the generic decoder for the types whose MLP has no gate, GPT-2's descendants.

use crate::job::{FieldError, Fields};

use super::shape::{LLAMA, MlpKind, Names, NormKind, Order, PARTIAL, Positions, Rotary, Scores, Shape};

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
        "gpt_neox" => gpt_neox(fields)?,
        "phi" => phi_shape(fields)?,
        "starcoder2" => starcoder2_shape(fields.flag("use_bias", true)?),
        "opt" => opt_shape(fields)?,
        "falcon" => falcon_shape(fields)?,
        "gpt_bigcode" => Shape {
            names: Names { qkv: &["c_attn"], o: "c_proj", up: "c_fc", down: "c_proj" },
            key_value_heads: fields.flag("multi_query", true)?.then_some(1),
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
        "gpt_neo" => GPT_NEO,
        "bloom" => BLOOM,
        _ => return Ok(None),
    };
    Ok(Some(shape))
}

fn gpt_neox(fields: &Fields) -> Result<Shape, FieldError> {
    let bias = fields.flag("attention_bias", true)?;
    Ok(Shape {
        order: if fields.flag("use_parallel_residual", true)? { Order::ParallelTwoNorms } else { Order::PreNorm },
        names: BLOOM.names,
        qkv_bias: bias,
        o_bias: bias,
        positions: Positions::Rotary(Rotary { factor: 0.25, ..PARTIAL }),
        residual_dropout: ("hidden_dropout", 0.0),
        embedding_dropout: ("hidden_dropout", 0.0),
        ..PLAIN
    })
}

fn phi_shape(fields: &Fields) -> Result<Shape, FieldError> {
    if fields.flag("qk_layernorm", false)? {
        return Err(FieldError::unsimulated("qk_layernorm", "norms on queries and keys are not simulated for phi"));
    }
    Ok(Shape {
        order: Order::Parallel,
        names: Names { qkv: LLAMA.names.qkv, o: "dense", up: "fc1", down: "fc2" },
        head_bias: true,
        positions: Positions::Rotary(PARTIAL),
        residual_dropout: ("resid_pdrop", 0.0),
        embedding_dropout: ("embd_pdrop", 0.0),
        activation: (&["hidden_act"], "gelu_new"),
        ..PLAIN
    })
}

const fn starcoder2_shape(bias: bool) -> Shape {
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

fn opt_shape(fields: &Fields) -> Result<Shape, FieldError> {
    if !fields.flag("do_layer_norm_before", true)? {
        return Err(FieldError::unsimulated(
            "do_layer_norm_before",
            "norms behind the branches are not simulated for opt",
        ));
    }
    let hidden = fields.optional_size("hidden_size")?;
    if fields.optional_size("word_embed_proj_dim")?.is_some_and(|width| Some(width) != hidden) {
        return Err(FieldError::unsimulated(
            "word_embed_proj_dim",
            "embeddings of another width than the model's are not simulated",
        ));
    }
    if !fields.flag("layer_norm_elementwise_affine", true)? || fields.flag("_remove_final_layer_norm", false)? {
        return Err(FieldError::unsimulated(
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
