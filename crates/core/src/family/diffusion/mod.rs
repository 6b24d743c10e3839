//! Denoisers of diffusers 0.42, which are only simulated: what latents with noise pass through in training
//! (`step/diffusion`). Each reads the config of its class (`_class_name`), whose name is its model type.

mod autoencoder;
mod clip_text;
mod convolutions;
mod flux;
mod layers;
mod pipeline;
mod sd3;
mod spatial;
mod texts;
mod unet;

use crate::building::{BuildError, Builder};
use crate::job::{Attention, FieldError, Fields, ModelSpec};
use crate::model_type::{FLUX, SD3, UNET};
use crate::op::{AttentionCall, scaled_dot_product_attention};
use crate::tensor::Tensor;

use super::{Build, Family};
pub(crate) use autoencoder::AutoencoderKl;
pub(crate) use flux::{FluxCall, FluxTransformer};
pub(crate) use pipeline::{Part, Pipeline};
pub(crate) use sd3::Sd3Transformer;
pub(crate) use texts::{Embedded, TextEncoders};
use unet::UNet;
pub(crate) use unet::UNetCall;

pub(super) const FAMILIES: [Family; 3] = [
    Family { model_types: &[UNET], build: Build::Denoiser(build_denoiser) },
    Family { model_types: &[FLUX], build: Build::Denoiser(build_denoiser) },
    Family { model_types: &[SD3], build: Build::Denoiser(build_denoiser) },
];

/// What is trained to take noise away.
pub(crate) enum Denoiser {
    Flux(Box<FluxTransformer>),
    Sd3(Box<Sd3Transformer>),
    UNet(Box<UNet>),
}

fn build_denoiser(model: &ModelSpec, at: &Builder, attention: Attention) -> Result<Denoiser, BuildError> {
    let fields = &model.config;
    Ok(match model.model_type.as_str() {
        UNET => Denoiser::UNet(Box::new(UNet::build(fields, at, attention)?)),
        SD3 => Denoiser::Sd3(Box::new(Sd3Transformer::build(fields, at, attention)?)),
        _ => Denoiser::Flux(Box::new(FluxTransformer::build(fields, at, attention)?)),
    })
}

/// Numbers of a batch as it was computed before: those of an image's latents, of each token of its prompt, and of the whole prompt.
pub(crate) struct Columns {
    pub channels: u64,
    pub prompt: u64,
    pub pooled: Option<u64>,
}

impl Denoiser {
    pub(crate) fn columns(&self) -> Columns {
        match self {
            Self::Flux(flux) => flux.columns(),
            Self::Sd3(sd3) => sd3.columns(),
            Self::UNet(unet) => unet.columns(),
        }
    }
}

/// `F.scaled_dot_product_attention(query, key, value)` of [rows, heads, tokens, width].
fn attend([query, key, value]: [&Tensor; 3], backend: Attention) -> Tensor {
    let scale = (query.size(-1) as f64).sqrt().recip();
    let call = AttentionCall { mask: None, dropout: 0.0, is_causal: false, scale, enable_gqa: false, backend };
    scaled_dot_product_attention(query, key, value, call)
}

/// No size of a config is larger.
const MAX_LISTED: u64 = 1 << 31;

/// A list of sizes in a config.
fn read_sizes(fields: &Fields, key: &str, default: &[u64]) -> Result<Vec<u64>, FieldError> {
    let wrong = || FieldError::new(key, "must be a list of whole numbers");
    let Some(value) = fields.get(key) else { return Ok(default.to_vec()) };
    let list = value.as_array().filter(|list| list.len() <= 4096).ok_or_else(wrong)?;
    list.iter().map(|size| size.as_u64().filter(|size| *size <= MAX_LISTED).ok_or_else(wrong)).collect()
}
