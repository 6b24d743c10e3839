//! What several model types have in common: a row begins with one of these.

use super::{BeyondPositions, ClassHeads, ConfigWords, ImageSizes, Liger, ModelKind, ModelType, NEVER, StateLayers};

/// Decoders with Llama's names, which Liger and flash-attn know.
pub(super) const LLAMA_LIKE: ModelType = ModelType {
    lora_targets: &["q_proj", "v_proj"],
    liger: Liger::Whole,
    flash_attention: true,
    class_heads: ClassHeads::GENERIC,
    ..ModelType::DECODER
};

/// Decoders with Llama's names and experts, as transformers 5 has them; their layers are not simulated with Liger's kernels.
pub(super) const EXPERTS: ModelType = ModelType {
    liger: Liger::LayersNotKnown { fuses_loss: true },
    has_experts: true,
    since: Some((5, 17)),
    layers_since: (5, 17),
    ..LLAMA_LIKE
};

/// Decoders with experts of which Liger and peft know nothing, and flash-attn's layers are not simulated.
pub(super) const UNFUSED_EXPERTS: ModelType =
    ModelType { has_experts: true, since: Some((5, 17)), layers_since: (5, 17), ..ModelType::DECODER };

/// Decoders with layers of linear attention.
pub(super) const LINEAR: ModelType = ModelType {
    state: StateLayers::DeltaRule,
    only_simulated: true,
    divides_heads: false,
    has_begin_token: false,
    since: Some((5, 17)),
    ..FUSED
};

/// Hybrids of attention and short convolutions.
pub(super) const CONVOLVED: ModelType = ModelType {
    state: StateLayers::Convolution,
    dropout_keys: &[],
    has_padding_token: true,
    only_simulated: true,
    divides_heads: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Nothing but state spaces.
pub(super) const STATE_SPACE: ModelType =
    ModelType { state: StateLayers::StateSpace, heads_key: "num_heads", sdpa_since: Some(NEVER), ..CONVOLVED };

/// Attention and state spaces.
pub(super) const HYBRID: ModelType =
    ModelType { state: StateLayers::StateSpace, dropout_keys: &["attention_dropout"], ..CONVOLVED };

/// Liger has kernels for its layers and its loss; the layers are not simulated with them.
pub(super) const FUSED: ModelType =
    ModelType { liger: Liger::LayersNotKnown { fuses_loss: true }, ..ModelType::DECODER };

/// Gemma 3n's and 4's text models, whose layers share keys.
pub(super) const GEMMA4: ModelType = ModelType {
    has_padding_token: true,
    only_simulated: true,
    divides_heads: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Encoders with BERT's config class.
pub(super) const BERT_LIKE: ModelType = ModelType {
    kind: ModelKind::MaskedLm,
    default_positions: Some(512),
    beyond_positions: BeyondPositions::Stops,
    dropout_keys: &["hidden_dropout_prob", "attention_probs_dropout_prob"],
    lora_targets: &["query", "value"],
    embeds: true,
    divides_heads: false,
    has_begin_token: false,
    ..ModelType::DECODER
};

/// BART's config class.
pub(super) const BART_LIKE: ModelType = ModelType {
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
pub(super) const T5_LIKE: ModelType = ModelType {
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
pub(super) const IMAGES: ModelType = ModelType {
    kind: ModelKind::Image,
    image: Some(ImageSizes { image: 224, patch: 16 }),
    dropout_keys: &["hidden_dropout_prob", "attention_probs_dropout_prob"],
    divides_heads: false,
    has_begin_token: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Two towers, of images and of texts, whose configs stand in that of the model; texts' positions are rows of a table.
pub(super) const IMAGE_TEXT: ModelType = ModelType {
    kind: ModelKind::ImageText,
    positions_keys: &["max_position_embeddings"],
    beyond_positions: BeyondPositions::Stops,
    divides_heads: false,
    only_simulated: true,
    has_begin_token: false,
    since: Some((5, 17)),
    ..ModelType::DECODER
};

/// Denoisers of diffusers, with the targets that its examples adapt.
pub(super) const DENOISER: ModelType = ModelType {
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

pub(super) const QUERY_VALUE: &[&str] = &["q_proj", "v_proj"];

/// GPT-2's config class.
pub(super) const GPT2_LIKE: ModelType = ModelType {
    config: ConfigWords::Gpt2,
    layers_key: "n_layer",
    heads_key: "n_head",
    dropout_keys: &["resid_pdrop", "embd_pdrop", "attn_pdrop"],
    divides_heads: false,
    ..ModelType::DECODER
};
