//! The model types that the generic decoder stands in for, as far as they differ from Llama in more than their layers.

use super::{BeyondPositions, Liger, ModelType};

/// Liger has kernels for its layers and its loss.
const FUSED: ModelType = ModelType { liger: Liger::LayersNotKnown { fuses_loss: true }, ..ModelType::DECODER };

const QUERY_VALUE: &[&str] = &["q_proj", "v_proj"];
const FUSED_QUERY_KEY_VALUE: &[&str] = &["query_key_value"];

/// GPT-2's names, as GPT-J and CodeGen have them.
const GPT2_WORDS: ModelType = ModelType {
    layers_key: "n_layer",
    heads_key: "n_head",
    beyond_positions: BeyondPositions::Stops,
    dropout_keys: &["resid_pdrop", "embd_pdrop", "attn_pdrop"],
    ..ModelType::DECODER
};

/// Dropout on both branches and on attention weights.
const HIDDEN_DROPOUT: ModelType =
    ModelType { dropout_keys: &["hidden_dropout", "attention_dropout"], ..ModelType::DECODER };

/// All of them, by name.
pub(super) static STAND_INS: &[ModelType] = &[
    ModelType {
        name: "bloom",
        layers_key: "n_layer",
        heads_key: "n_head",
        lora_targets: FUSED_QUERY_KEY_VALUE,
        ..HIDDEN_DROPOUT
    },
    ModelType { name: "codegen", lora_targets: &["qkv_proj"], ..GPT2_WORDS },
    ModelType { name: "exaone4", ..FUSED },
    ModelType { name: "falcon", lora_targets: FUSED_QUERY_KEY_VALUE, ..HIDDEN_DROPOUT },
    ModelType { name: "gemma", lora_targets: QUERY_VALUE, ..FUSED },
    ModelType {
        name: "gpt_neo",
        layers_key: "num_layers",
        heads_key: "num_heads",
        beyond_positions: BeyondPositions::Stops,
        dropout_keys: &["resid_dropout", "embed_dropout", "attention_dropout"],
        lora_targets: QUERY_VALUE,
        ..ModelType::DECODER
    },
    ModelType { name: "gptj", lora_targets: QUERY_VALUE, ..GPT2_WORDS },
    ModelType { name: "ministral", ..FUSED },
    ModelType { name: "qwen2_5_vl_text", ..FUSED },
    ModelType { name: "qwen2_vl_text", ..FUSED },
    ModelType { name: "qwen3_vl_text", ..FUSED },
    ModelType { name: "seed_oss", dropout_keys: &["residual_dropout", "attention_dropout"], ..ModelType::DECODER },
];
