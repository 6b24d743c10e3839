//! Keys of diffusion training.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const KEYS: [Key; 3] = [
    Key {
        name: names::RESOLUTION,
        kind: Kind::Size { min: 64, max: 1 << 14 },
        default: Default::Fixed("512", "diffusers' examples"),
        doc: "height and width of images in pixels, for diffusion; latents have an eighth of each",
        example: "1024",
    },
    Key {
        name: names::CACHE_LATENTS,
        kind: Kind::Switch,
        default: Default::Fixed("true", "the VAE in the step is not simulated"),
        doc: "latents of images were computed before, for diffusion: no VAE is on the device",
        example: "true",
    },
    Key {
        name: names::CACHE_TEXT_EMBEDDINGS,
        kind: Kind::Switch,
        default: Default::Fixed("true", "text encoders in the step are not simulated"),
        doc: "embeddings of prompts were computed before, for diffusion: no text encoder is on the device",
        example: "true",
    },
];
