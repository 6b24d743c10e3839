//! What Liger replaces in which models (liger-kernel 0.8.5, transformers/monkey_patch.py, `MODEL_TYPE_TO_APPLY_LIGER_FN`).

/// Of the model types that are simulated, those whose head and loss it fuses.
const FUSES_LOSS: [&str; 17] = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "exaone4",
    "gemma",
    "glm4",
    "ministral",
    "olmo2",
    "olmo3",
    "smollm3",
    "qwen2_vl_text",
    "qwen2_5_vl_text",
    "qwen3_vl_text",
];

/// Those whose layers it replaces without a fused loss.
const LAYERS_WITHOUT_LOSS: [&str; 1] = ["granite"];

/// Those whose norms, rotary embeddings and MLPs are simulated with its kernels.
pub(crate) const LAYERS: [&str; 7] = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3"];

/// What is known of Liger's kernels in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LigerModel {
    /// Layers and loss.
    Whole,
    /// It replaces layers of the model that are not simulated with its kernels.
    LayersNotKnown,
    /// It has nothing for the model: transformers says so in its log and trains without.
    Untouched,
}

/// What is known of `model_type`.
pub(crate) fn liger_model(model_type: &str) -> LigerModel {
    if LAYERS.contains(&model_type) {
        LigerModel::Whole
    } else if fuses_loss(model_type) || LAYERS_WITHOUT_LOSS.contains(&model_type) {
        LigerModel::LayersNotKnown
    } else {
        LigerModel::Untouched
    }
}

/// Whether it fuses head and loss of `model_type`.
pub(crate) fn fuses_loss(model_type: &str) -> bool {
    FUSES_LOSS.contains(&model_type)
}
