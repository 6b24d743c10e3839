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
        default: Default::Fixed("true", "as the examples do with --cache_latents"),
        doc: "latents of images were computed before, for diffusion; else the VAE is on the device and makes them in each pass",
        example: "false",
    },
    Key {
        name: names::CACHE_TEXT_EMBEDDINGS,
        kind: Kind::Switch,
        default: Default::Fixed("true", "as the examples do with one prompt for all images"),
        doc: "embeddings of prompts were computed before, for diffusion; else text encoders are on the device and make them in each pass",
        example: "false",
    },
];
