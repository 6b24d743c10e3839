//! The multimodal models whose towers are simulated, a row a type.

use super::ImageSizes;

/// How the images of a model come to its tower, and what it makes of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ImageForm {
    /// Of one size.
    Patches(ImageSizes, ImageTokens),
    /// Of any size, as patches in one list with a grid for each.
    Grids(GridSizes),
    /// Of any size, in tensors of the largest, with the sides of each; so many pixels on the side of a patch.
    Sized(u64),
}

/// How many tokens an image of one size takes the place of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ImageTokens {
    /// Its patches, and where `vision_feature_select_strategy` is `full` the token for the whole image.
    Selected,
    /// As many as its patches.
    Patches,
    /// What the config says under this key, or this number.
    Said(&'static str, u64),
    /// One of the patches of a square: the config has the inverse of its side under this key.
    Shuffled(&'static str, f64),
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
    /// Whether the Trainer tells it how many tokens of a step have labels (`accepts_loss_kwargs`).
    takes_item_count: bool,
    /// Whether its processor says of each token what it stands for.
    has_token_types: bool,
}

const QWEN_TYPE: VisionType = VisionType {
    name: "",
    text_type: "",
    form: QWEN,
    default_tower: &[],
    takes_item_count: true,
    has_token_types: true,
};

const QWEN3_TYPE: VisionType = VisionType {
    form: ImageForm::Grids(GridSizes { patch: 16, channels_key: "in_channels" }),
    takes_item_count: false,
    ..QWEN_TYPE
};

const SIGLIP: ImageSizes = ImageSizes { image: 224, patch: 16 };

const ROWS: &[VisionType] = &[
    VisionType {
        name: "gemma3",
        text_type: "gemma3_text",
        form: ImageForm::Patches(SIGLIP, ImageTokens::Said("mm_tokens_per_image", 256)),
        default_tower: &[],
        takes_item_count: true,
        has_token_types: true,
    },
    VisionType {
        name: "internvl",
        text_type: "qwen2",
        form: ImageForm::Patches(ImageSizes { image: 448, patch: 14 }, ImageTokens::Shuffled("downsample_ratio", 0.5)),
        default_tower: &[],
        takes_item_count: true,
        has_token_types: false,
    },
    VisionType {
        name: "llava",
        text_type: "llama",
        form: ImageForm::Patches(ImageSizes { image: 224, patch: 32 }, ImageTokens::Selected),
        default_tower: &[
            ("hidden_size", 1024),
            ("image_size", 336),
            ("intermediate_size", 4096),
            ("num_attention_heads", 16),
            ("num_hidden_layers", 24),
            ("patch_size", 14),
        ],
        takes_item_count: true,
        has_token_types: false,
    },
    VisionType {
        name: "mistral3",
        text_type: "mistral",
        form: ImageForm::Sized(14),
        default_tower: &[],
        takes_item_count: true,
        has_token_types: false,
    },
    VisionType {
        name: "paligemma",
        text_type: "gemma",
        form: ImageForm::Patches(SIGLIP, ImageTokens::Patches),
        default_tower: &[
            ("hidden_size", 1152),
            ("image_size", 224),
            ("intermediate_size", 4096),
            ("num_attention_heads", 16),
            ("num_hidden_layers", 27),
            ("patch_size", 14),
        ],
        takes_item_count: true,
        has_token_types: true,
    },
    VisionType { name: "qwen2_5_vl", text_type: "qwen2_5_vl_text", takes_item_count: false, ..QWEN_TYPE },
    VisionType { name: "qwen2_vl", text_type: "qwen2_vl_text", ..QWEN_TYPE },
    VisionType { name: "qwen3_vl", text_type: "qwen3_vl_text", ..QWEN3_TYPE },
    VisionType { name: "qwen3_vl_moe", text_type: "qwen3_vl_moe_text", ..QWEN3_TYPE },
];

/// How the images of this multimodal model come to its tower; `None` where no tower is simulated.
pub(crate) fn vision_form(model_type: &str) -> Option<ImageForm> {
    ROWS.iter().find(|row| row.name == model_type).map(|row| row.form)
}

/// Whether the processor of this multimodal model says of each token what it stands for.
pub(crate) fn has_token_types(model_type: &str) -> bool {
    ROWS.iter().any(|row| row.name == model_type && row.has_token_types)
}

/// The type of the text model of a multimodal model that says none; `None` where no tower is simulated.
pub(crate) fn text_type(model_type: &str) -> Option<&'static str> {
    ROWS.iter().find(|row| row.name == model_type).map(|row| row.text_type)
}

/// Whether the Trainer tells this multimodal model how many tokens of a step have labels.
pub(crate) fn takes_item_count(model_type: &str) -> bool {
    ROWS.iter().find(|row| row.name == model_type).is_none_or(|row| row.takes_item_count)
}

/// The config of the tower of a model that says none.
pub(crate) fn default_tower(model_type: &str) -> impl Iterator<Item = (&'static str, u64)> {
    ROWS.iter().find(|row| row.name == model_type).into_iter().flat_map(|row| row.default_tower.iter().copied())
}

/// The multimodal models whose towers are simulated.
pub(crate) fn with_towers() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}
