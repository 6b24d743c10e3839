//! The multimodal models whose towers are simulated, a row a type.

use super::ImageSizes;

/// How the images of a model come to its tower, and what it makes of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ImageForm {
    /// Of one size, a token for each patch.
    Patches(ImageSizes),
    /// Of any size, as patches in one list with a grid for each.
    Grids(GridSizes),
}

/// Defaults of a config of such patches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridSizes {
    pub patch: u64,
    pub channels_key: &'static str,
}

const QWEN: ImageForm = ImageForm::Grids(GridSizes { patch: 14, channels_key: "in_channels" });

/// A multimodal model type.
struct VisionType {
    name: &'static str,
    form: ImageForm,
    /// The type of a text model that says none.
    text_type: &'static str,
    /// What its class makes where its config has no tower.
    default_tower: &'static [(&'static str, u64)],
}

const ROWS: &[VisionType] = &[
    VisionType {
        name: "llava",
        text_type: "llama",
        form: ImageForm::Patches(ImageSizes { image: 224, patch: 32 }),
        default_tower: &[
            ("hidden_size", 1024),
            ("image_size", 336),
            ("intermediate_size", 4096),
            ("num_attention_heads", 16),
            ("num_hidden_layers", 24),
            ("patch_size", 14),
        ],
    },
    VisionType { name: "qwen2_5_vl", text_type: "qwen2_5_vl_text", form: QWEN, default_tower: &[] },
    VisionType { name: "qwen2_vl", text_type: "qwen2_vl_text", form: QWEN, default_tower: &[] },
];

/// How the images of this multimodal model come to its tower; `None` where no tower is simulated.
pub(crate) fn vision_form(model_type: &str) -> Option<ImageForm> {
    ROWS.iter().find(|row| row.name == model_type).map(|row| row.form)
}

/// The type of the text model of a multimodal model that says none; `None` where no tower is simulated.
pub(crate) fn text_type(model_type: &str) -> Option<&'static str> {
    ROWS.iter().find(|row| row.name == model_type).map(|row| row.text_type)
}

/// The config of the tower of a model that says none.
pub(crate) fn default_tower(model_type: &str) -> impl Iterator<Item = (&'static str, u64)> {
    ROWS.iter().find(|row| row.name == model_type).into_iter().flat_map(|row| row.default_tower.iter().copied())
}

/// The multimodal models whose towers are simulated.
pub(crate) fn with_towers() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}
