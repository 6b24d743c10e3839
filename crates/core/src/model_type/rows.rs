//! The model types that families mirror, in the order in which they are listed.

use super::{
    BeyondPositions, ClassHeads, ConfigWords, ImageSizes, Liger, ModelKind, ModelType, NEVER, StateLayers, TokenHead,
};

/// The small GPT of the guide, whose configs have no `model_type`.
pub const AGI2: &str = "agi2";
pub(crate) const GPT2: &str = "gpt2";
/// The hierarchical reasoning model, whose configs have no `model_type` either.
pub const HRM: &str = "hrm";
pub(crate) const QWEN2: &str = "qwen2";
/// Models of diffusers are called as their classes, which their configs name.
pub(crate) const FLUX: &str = "FluxTransformer2DModel";
pub(crate) const UNET: &str = "UNet2DConditionModel";
pub(crate) const SD3: &str = "SD3Transformer2DModel";

/// Decoders with Llama's names, which Liger and flash-attn know.
const LLAMA_LIKE: ModelType = ModelType {
    lora_targets: &["q_proj", "v_proj"],
    liger: Liger::Whole,
    flash_attention: true,
    class_heads: ClassHeads::GENERIC,
    ..ModelType::DECODER
};

/// Decoders with Llama's names and experts, as transformers 5 has them; their layers are not simulated with Liger's kernels.
const EXPERTS: ModelType = ModelType {
    liger: Liger::LayersNotKnown { fuses_loss: true },
    has_experts: true,
    since: Some((5, 17)),
    layers_since: (5, 17),
    ..LLAMA_LIKE
};

/// Decoders with experts of which Liger and peft know nothing, and flash-attn's layers are not simulated.
const UNFUSED_EXPERTS: ModelType =
    ModelType { has_experts: true, since: Some((5, 17)), layers_since: (5, 17), ..ModelType::DECODER };

/// Decoders with layers of linear attention.
const LINEAR: ModelType = ModelType {
    state: StateLayers::DeltaRule,
    only_simulated: true,
    divides_heads: false,
    has_begin_token: false,
    since: Some((5, 17)),
    ..FUSED
};

/// Hybrids of attention and short convolutions.
const CONVOLVED: ModelType = ModelType {
    state: StateLayers::Convolution,
    dropout_keys: &[],
    has_padding_token: true,
    only_simulated: true,
    divides_heads: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Nothing but state spaces.
const STATE_SPACE: ModelType =
    ModelType { state: StateLayers::StateSpace, heads_key: "num_heads", sdpa_since: Some(NEVER), ..CONVOLVED };

/// Attention and state spaces.
const HYBRID: ModelType =
    ModelType { state: StateLayers::StateSpace, dropout_keys: &["attention_dropout"], ..CONVOLVED };

/// Liger has kernels for its layers and its loss; the layers are not simulated with them.
const FUSED: ModelType = ModelType { liger: Liger::LayersNotKnown { fuses_loss: true }, ..ModelType::DECODER };

/// Gemma 3n's and 4's text models, whose layers share keys.
const GEMMA4: ModelType = ModelType {
    has_padding_token: true,
    only_simulated: true,
    divides_heads: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Encoders with BERT's config class.
const BERT_LIKE: ModelType = ModelType {
    kind: ModelKind::MaskedLm,
    default_positions: Some(512),
    beyond_positions: BeyondPositions::Stops,
    dropout_keys: &["hidden_dropout_prob", "attention_probs_dropout_prob"],
    lora_targets: &["query", "value"],
    divides_heads: false,
    has_begin_token: false,
    ..ModelType::DECODER
};

/// BART's config class.
const BART_LIKE: ModelType = ModelType {
    keeps_cache: false,
    layers_key: "encoder_layers",
    heads_key: "encoder_attention_heads",
    positions_keys: &["max_position_embeddings"],
    default_positions: Some(1024),
    beyond_positions: BeyondPositions::Stops,
    dropout_keys: &["dropout", "attention_dropout", "activation_dropout"],
    lora_targets: &[],
    ..T5_LIKE
};

/// T5's config class.
const T5_LIKE: ModelType = ModelType {
    kind: ModelKind::EncoderDecoder,
    keeps_cache: true,
    prepares_targets: true,
    config: ConfigWords::EncoderDecoder,
    layers_key: "num_layers",
    heads_key: "num_heads",
    dropout_keys: &["dropout_rate"],
    lora_targets: &["q", "v"],
    divides_heads: false,
    only_simulated: true,
    has_begin_token: false,
    has_padding_token: true,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Encoders of images: patches stand where others have tokens, at rows of a table that is as long.
const IMAGES: ModelType = ModelType {
    kind: ModelKind::Image,
    image: Some(ImageSizes { image: 224, patch: 16 }),
    dropout_keys: &["hidden_dropout_prob", "attention_probs_dropout_prob"],
    divides_heads: false,
    has_begin_token: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Denoisers of diffusers, with the targets that its examples adapt.
const DENOISER: ModelType = ModelType {
    kind: ModelKind::Denoiser,
    in_transformers: false,
    config: ConfigWords::Diffusers,
    layers_key: "num_layers",
    positions_keys: &[],
    dropout_keys: &[],
    lora_targets: &["to_k", "to_q", "to_v", "to_out.0"],
    divides_heads: false,
    only_simulated: true,
    has_begin_token: false,
    ..ModelType::DECODER
};

const QUERY_VALUE: &[&str] = &["q_proj", "v_proj"];

/// GPT-2's config class.
const GPT2_LIKE: ModelType = ModelType {
    config: ConfigWords::Gpt2,
    layers_key: "n_layer",
    heads_key: "n_head",
    dropout_keys: &["resid_pdrop", "embd_pdrop", "attn_pdrop"],
    divides_heads: false,
    ..ModelType::DECODER
};

/// All of them.
pub(super) static ROWS: &[ModelType] = &[
    ModelType { name: "bamba", ..HYBRID },
    ModelType { name: "bart", lora_targets: QUERY_VALUE, ..BART_LIKE },
    ModelType { name: "bert", sdpa_since: Some((4, 41)), layers_since: (4, 38), ..BERT_LIKE },
    ModelType { name: "cohere", since: Some((4, 39)), ..ModelType::DECODER },
    ModelType { name: "cohere2", since: Some((4, 48)), ..ModelType::DECODER },
    ModelType {
        name: "deberta-v2",
        default_positions: None,
        beyond_positions: BeyondPositions::Runs,
        lora_targets: &["query_proj", "value_proj"],
        sdpa_since: Some(NEVER),
        since: Some((5, 17)),
        ..BERT_LIKE
    },
    ModelType {
        name: "deepseek_v2",
        only_simulated: true,
        class_heads: ClassHeads::ROWS,
        lora_targets: &[],
        flash_attention: false,
        divides_heads: false,
        ..EXPERTS
    },
    ModelType { name: "deepseek_v3", lora_targets: &[], flash_attention: false, divides_heads: false, ..EXPERTS },
    ModelType { name: "dinov2", image: Some(ImageSizes { image: 224, patch: 14 }), ..IMAGES },
    ModelType {
        name: "distilbert",
        config: ConfigWords::DistilBert,
        layers_key: "n_layers",
        heads_key: "n_heads",
        dropout_keys: &["dropout", "attention_dropout"],
        lora_targets: &["q_lin", "v_lin"],
        ..BERT_LIKE
    },
    ModelType { name: "electra", since: Some((5, 17)), ..BERT_LIKE },
    ModelType { name: "falcon_h1", liger: Liger::LayersNotKnown { fuses_loss: true }, ..HYBRID },
    ModelType { name: "gemma2", has_padding_token: true, since: Some((4, 42)), ..LLAMA_LIKE },
    ModelType {
        name: "gemma3_text",
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        since: Some((4, 50)),
        ..LLAMA_LIKE
    },
    ModelType { name: "gemma3n_text", ..GEMMA4 },
    ModelType { name: "gemma4_text", has_experts: true, liger: Liger::LayersNotKnown { fuses_loss: true }, ..GEMMA4 },
    ModelType { name: "gemma4_unified_text", ..GEMMA4 },
    ModelType {
        name: "glm",
        has_padding_token: true,
        class_heads: ClassHeads::GENERIC,
        has_begin_token: false,
        since: Some((4, 46)),
        ..ModelType::DECODER
    },
    ModelType {
        name: "glm4",
        has_padding_token: true,
        class_heads: ClassHeads::GENERIC,
        has_begin_token: false,
        since: Some((4, 51)),
        ..FUSED
    },
    ModelType { name: "glm4_moe", has_begin_token: false, ..UNFUSED_EXPERTS },
    ModelType { name: "glm4_moe_lite", only_simulated: true, divides_heads: false, ..UNFUSED_EXPERTS },
    ModelType {
        name: GPT2,
        class_heads: ClassHeads {
            rows: true,
            tokens: Some(TokenHead { name: "classifier", float_loss: false, ..TokenHead::GENERIC }),
        },
        aliases: &["gpt-sw3"],
        default_positions: Some(1024),
        beyond_positions: BeyondPositions::Stops,
        lora_targets: &["c_attn"],
        sdpa_since: Some((4, 42)),
        layers_since: (4, 38),
        ..GPT2_LIKE
    },
    ModelType {
        name: "gpt_neox",
        class_heads: ClassHeads {
            rows: true,
            tokens: Some(TokenHead { name: "classifier", dropout_keys: &["classifier_dropout"], ..TokenHead::GENERIC }),
        },
        dropout_keys: &["hidden_dropout", "attention_dropout"],
        lora_targets: &["query_key_value"],
        divides_heads: false,
        ..ModelType::DECODER
    },
    ModelType {
        name: "gpt_oss",
        has_begin_token: false,
        lora_targets: &[],
        sdpa_since: Some(NEVER),
        flash_attention: false,
        ..EXPERTS
    },
    ModelType {
        name: "granite",
        class_heads: ClassHeads::NONE,
        lora_targets: &[],
        liger: Liger::LayersNotKnown { fuses_loss: false },
        since: Some((4, 45)),
        ..LLAMA_LIKE
    },
    ModelType { name: "granitemoehybrid", has_experts: true, has_padding_token: false, ..HYBRID },
    ModelType {
        name: "hunyuan_v1_dense",
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        since: Some((4, 56)),
        ..ModelType::DECODER
    },
    ModelType { name: "lfm2", ..CONVOLVED },
    ModelType { name: "lfm2_moe", has_experts: true, ..CONVOLVED },
    ModelType { name: "llama", since: Some((4, 42)), layers_since: (4, 42), ..LLAMA_LIKE },
    ModelType {
        name: "llama4_text",
        only_simulated: true,
        class_heads: ClassHeads::NONE,
        lora_targets: &[],
        flash_attention: false,
        ..EXPERTS
    },
    ModelType {
        name: "m2m_100",
        prepares_targets: false,
        default_positions: None,
        beyond_positions: BeyondPositions::Runs,
        ..BART_LIKE
    },
    ModelType { name: "mamba2", ..STATE_SPACE },
    ModelType { name: "marian", ..BART_LIKE },
    ModelType { name: "mbart", ..BART_LIKE },
    ModelType { name: "minimax_m2", only_simulated: true, ..UNFUSED_EXPERTS },
    ModelType { name: "mistral", layers_since: (4, 38), ..LLAMA_LIKE },
    ModelType {
        name: "mistral4",
        only_simulated: true,
        class_heads: ClassHeads::GENERIC,
        divides_heads: false,
        has_padding_token: true,
        ..UNFUSED_EXPERTS
    },
    ModelType { name: "mixtral", ..EXPERTS },
    ModelType {
        name: "modernbert",
        default_positions: None,
        beyond_positions: BeyondPositions::Runs,
        dropout_keys: &["attention_dropout", "embedding_dropout", "mlp_dropout"],
        lora_targets: &[],
        since: Some((5, 17)),
        ..BERT_LIKE
    },
    ModelType { name: "mt5", ..T5_LIKE },
    ModelType { name: "nemotron", class_heads: ClassHeads::GENERIC, since: Some((4, 44)), ..ModelType::DECODER },
    ModelType { name: "nemotron_h", lora_targets: &["q_proj", "k_proj", "v_proj", "o_proj"], ..HYBRID },
    ModelType {
        name: "olmo",
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        has_begin_token: false,
        since: Some((4, 40)),
        ..ModelType::DECODER
    },
    ModelType {
        name: "olmo2",
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        has_begin_token: false,
        since: Some((4, 47)),
        ..FUSED
    },
    ModelType {
        name: "olmo3",
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        has_begin_token: false,
        since: Some((4, 57)),
        ..FUSED
    },
    ModelType { name: "olmoe", has_begin_token: false, ..UNFUSED_EXPERTS },
    ModelType {
        name: "opt",
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        default_positions: Some(2048),
        beyond_positions: BeyondPositions::Stops,
        dropout_keys: &["dropout", "attention_dropout"],
        lora_targets: QUERY_VALUE,
        divides_heads: false,
        ..ModelType::DECODER
    },
    ModelType { name: "pegasus", ..BART_LIKE },
    ModelType {
        name: "phi",
        class_heads: ClassHeads::GENERIC,
        dropout_keys: &["resid_pdrop", "embd_pdrop", "attention_dropout"],
        lora_targets: &["q_proj", "v_proj", "fc1", "fc2"],
        ..ModelType::DECODER
    },
    ModelType {
        name: "phi3",
        has_padding_token: true,
        dropout_keys: &["resid_pdrop", "embd_pdrop", "attention_dropout"],
        lora_targets: &[],
        since: Some((4, 41)),
        layers_since: (4, 48),
        ..LLAMA_LIKE
    },
    ModelType { name: QWEN2, has_begin_token: false, layers_since: (4, 38), ..LLAMA_LIKE },
    ModelType {
        name: "qwen2_moe",
        only_simulated: true,
        has_begin_token: false,
        lora_targets: &[],
        liger: Liger::Untouched,
        ..EXPERTS
    },
    ModelType { name: "qwen3", has_begin_token: false, since: Some((4, 51)), layers_since: (4, 51), ..LLAMA_LIKE },
    ModelType { name: "qwen3_5_moe_text", has_experts: true, ..LINEAR },
    ModelType { name: "qwen3_5_text", ..LINEAR },
    ModelType { name: "qwen3_moe", has_begin_token: false, lora_targets: &[], ..EXPERTS },
    ModelType {
        name: "qwen3_vl_moe_text",
        only_simulated: true,
        class_heads: ClassHeads::NONE,
        has_begin_token: false,
        lora_targets: &[],
        flash_attention: false,
        ..EXPERTS
    },
    ModelType { name: "qwen3_next", has_experts: true, ..LINEAR },
    ModelType { name: "roberta", padding_positions: true, ..BERT_LIKE },
    ModelType { name: "smollm3", has_padding_token: true, since: Some((4, 53)), layers_since: (4, 53), ..LLAMA_LIKE },
    ModelType {
        name: "stablelm",
        class_heads: ClassHeads { rows: true, tokens: Some(TokenHead { dropout: 0.0, ..TokenHead::GENERIC }) },
        dropout_keys: &["hidden_dropout", "attention_dropout"],
        lora_targets: QUERY_VALUE,
        divides_heads: false,
        ..ModelType::DECODER
    },
    ModelType {
        name: "starcoder2",
        class_heads: ClassHeads::GENERIC,
        dropout_keys: &["residual_dropout", "embedding_dropout", "attention_dropout"],
        since: Some((4, 39)),
        ..ModelType::DECODER
    },
    ModelType { name: "t5", ..T5_LIKE },
    ModelType { name: "vit", ..IMAGES },
    ModelType {
        name: "whisper",
        hears: true,
        positions_keys: &["max_source_positions"],
        default_positions: Some(1500),
        ..BART_LIKE
    },
    ModelType { name: "xlm-roberta", padding_positions: true, ..BERT_LIKE },
    ModelType { name: AGI2, in_transformers: false, beyond_positions: BeyondPositions::FollowRows, ..GPT2_LIKE },
    ModelType {
        name: HRM,
        kind: ModelKind::Puzzle,
        in_transformers: false,
        config: ConfigWords::Hrm,
        heads_key: "num_heads",
        row_key: Some("seq_len"),
        ..ModelType::DECODER
    },
    // Their VAE; T5-XXL's encoder and CLIP's of ViT-L/14, for SD3 and SDXL OpenCLIP's of ViT-bigG/14 too (counted by transformers and diffusers).
    ModelType { name: FLUX, encoder_parameters: 4_969_190_819, ..DENOISER },
    ModelType { name: SD3, encoder_parameters: 5_664_440_483, ..DENOISER },
    ModelType {
        name: UNET,
        layers_key: "layers_per_block",
        heads_key: "attention_head_dim",
        encoder_parameters: 901_374_183,
        ..DENOISER
    },
];
