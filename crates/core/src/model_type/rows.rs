//! The model types that families mirror, in the order in which they are listed.

use super::likes::{
    BART_LIKE, BERT_LIKE, CONVOLVED, DENOISER, EXPERTS, FUSED, GEMMA4, GPT2_LIKE, HYBRID, IMAGE_TEXT, IMAGES, LINEAR,
    LLAMA_LIKE, QUERY_VALUE, STATE_SPACE, T5_LIKE, UNFUSED_EXPERTS,
};
use super::{
    BeyondPositions, ClassHeads, ConfigWords, Foak, ImageSizes, Liger, ModelKind, ModelType, NEVER, TokenHead,
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

/// All of them.
pub(super) static ROWS: &[ModelType] = &[
    ModelType { name: "bamba", ..HYBRID },
    ModelType { name: "bart", lora_targets: QUERY_VALUE, ..BART_LIKE },
    ModelType { name: "bert", token_types: true, sdpa_since: Some((4, 41)), layers_since: (4, 38), ..BERT_LIKE },
    ModelType {
        name: "clip",
        pair_image: Some(ImageSizes { image: 224, patch: 32 }),
        default_positions: Some(77),
        ..IMAGE_TEXT
    },
    ModelType { name: "cohere", has_tensor_plan: true, since: Some((4, 39)), ..ModelType::DECODER },
    ModelType { name: "cohere2", since: Some((4, 48)), ..ModelType::DECODER },
    ModelType {
        name: "deberta-v2",
        embeds: false,
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
    ModelType { name: "electra", embeds: false, since: Some((5, 17)), ..BERT_LIKE },
    ModelType { name: "falcon_h1", liger: Liger::LayersNotKnown { fuses_loss: true }, ..HYBRID },
    // Without heads: what each channel has as many of.
    ModelType { name: "falcon_mamba", heads_key: "state_size", ..STATE_SPACE },
    ModelType { name: "gemma2", has_tensor_plan: true, has_padding_token: true, since: Some((4, 42)), ..LLAMA_LIKE },
    ModelType {
        name: "gemma3_text",
        has_tensor_plan: true,
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
        name: "gpt_bigcode",
        class_heads: ClassHeads {
            rows: true,
            tokens: Some(TokenHead { name: "classifier", float_loss: false, ..TokenHead::GENERIC }),
        },
        default_positions: Some(1024),
        beyond_positions: BeyondPositions::Stops,
        lora_targets: &["c_attn"],
        foak: Foak::CrossEntropy,
        flash_attention: true,
        drops_keys_since: Some((4, 54)),
        layers_since: (4, 44),
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
        has_tensor_plan: true,
        foak: Foak::Whole,
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
    ModelType { name: "jamba", has_experts: true, kept_whole: Some("Jamba's layers"), ..HYBRID },
    ModelType { name: "lfm2", ..CONVOLVED },
    ModelType { name: "lfm2_moe", has_experts: true, ..CONVOLVED },
    ModelType {
        name: "llama",
        has_stages: true,
        shares_tokens: true,
        has_tensor_plan: true,
        embeds: true,
        foak: Foak::Whole,
        since: Some((4, 42)),
        layers_since: (4, 42),
        ..LLAMA_LIKE
    },
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
    ModelType { name: "mamba", heads_key: "state_size", ..STATE_SPACE },
    ModelType { name: "mamba2", ..STATE_SPACE },
    ModelType { name: "marian", ..BART_LIKE },
    ModelType { name: "mbart", ..BART_LIKE },
    ModelType { name: "minimax_m2", only_simulated: true, ..UNFUSED_EXPERTS },
    ModelType {
        name: "mistral",
        has_stages: true,
        has_tensor_plan: true,
        embeds: true,
        foak: Foak::Whole,
        layers_since: (4, 38),
        ..LLAMA_LIKE
    },
    ModelType {
        name: "mistral4",
        only_simulated: true,
        class_heads: ClassHeads::GENERIC,
        divides_heads: false,
        has_padding_token: true,
        ..UNFUSED_EXPERTS
    },
    ModelType { name: "mixtral", foak: Foak::Whole, since: Some((4, 48)), layers_since: (4, 48), ..EXPERTS },
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
        has_stages: true,
        has_tensor_plan: true,
        has_padding_token: true,
        class_heads: ClassHeads::ROWS,
        has_begin_token: false,
        since: Some((4, 40)),
        ..ModelType::DECODER
    },
    ModelType {
        name: "olmo2",
        has_stages: true,
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
        has_stages: true,
        has_padding_token: true,
        dropout_keys: &["resid_pdrop", "embd_pdrop", "attention_dropout"],
        lora_targets: &[],
        since: Some((4, 41)),
        layers_since: (4, 48),
        ..LLAMA_LIKE
    },
    ModelType {
        name: QWEN2,
        has_stages: true,
        shares_tokens: true,
        has_tensor_plan: true,
        embeds: true,
        has_begin_token: false,
        layers_since: (4, 38),
        ..LLAMA_LIKE
    },
    ModelType {
        name: "qwen2_moe",
        only_simulated: true,
        has_begin_token: false,
        lora_targets: &[],
        liger: Liger::Untouched,
        ..EXPERTS
    },
    ModelType {
        name: "qwen3",
        has_stages: true,
        shares_tokens: true,
        has_tensor_plan: true,
        embeds: true,
        has_begin_token: false,
        since: Some((4, 51)),
        layers_since: (4, 51),
        ..LLAMA_LIKE
    },
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
    ModelType {
        name: "siglip",
        pair_image: Some(ImageSizes { image: 224, patch: 16 }),
        default_positions: Some(64),
        ..IMAGE_TEXT
    },
    ModelType {
        name: "smollm3",
        has_tensor_plan: true,
        has_padding_token: true,
        since: Some((4, 53)),
        layers_since: (4, 53),
        ..LLAMA_LIKE
    },
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
    ModelType { name: "zamba2", kept_whole: Some("layers that have their weights in common"), ..HYBRID },
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
