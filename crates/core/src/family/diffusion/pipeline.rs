//! The pipeline that a denoiser is part of, by its config: which encoders are beside it, and what comes to the device before what.

use crate::dtype::DType;
use crate::job::{FieldError, ModelSpec};
use crate::model_type::{FLUX, SD3};

/// Whose examples train it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipeline {
    /// Stable Diffusion 1 and 2.
    Sd,
    Sdxl,
    Sd3,
    Flux,
}

/// What comes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Vae,
    Texts,
    Denoiser,
}

impl Pipeline {
    pub(crate) fn of(model: &ModelSpec) -> Self {
        match model.model_type.as_str() {
            FLUX => Self::Flux,
            SD3 => Self::Sd3,
            _ if model.config.get("addition_embed_type").is_some_and(serde_json::Value::is_string) => Self::Sdxl,
            _ => Self::Sd,
        }
    }

    /// Whether a transformer learns the way from noise to latents, and not a UNet the noise.
    pub(crate) const fn is_flow(self) -> bool {
        matches!(self, Self::Sd3 | Self::Flux)
    }

    /// As the scripts move them: what is trained whole comes when accelerate prepares it.
    pub(crate) const fn loading_order(self, has_adapters: bool) -> [Part; 3] {
        match (self.is_flow(), has_adapters) {
            (true, true) => [Part::Vae, Part::Denoiser, Part::Texts],
            (true, false) => [Part::Vae, Part::Texts, Part::Denoiser],
            (false, true) => [Part::Denoiser, Part::Vae, Part::Texts],
            (false, false) => [Part::Denoiser, Part::Texts, Part::Vae],
        }
    }

    /// The VAE's dtype: the scripts of SDXL and SD3 leave it in fp32.
    pub(crate) const fn vae_dtype(self, frozen: DType) -> DType {
        match self {
            Self::Sdxl | Self::Sd3 => DType::Float32,
            Self::Sd | Self::Flux => frozen,
        }
    }

    /// Channels of latents, which Flux has packed by four.
    pub(crate) fn latents(self, model: &ModelSpec) -> Result<u64, FieldError> {
        match self {
            Self::Flux => Ok(model.config.size("in_channels", 64)? / 4),
            Self::Sd3 => model.config.size("in_channels", 16),
            Self::Sd | Self::Sdxl => model.config.size("in_channels", 4),
        }
    }
}
