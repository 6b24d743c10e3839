//! The VAE and the text encoders that the scripts keep on the device, frozen and outside autocast.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Mode};
use crate::dtype::DType;
use crate::family::{AutoencoderKl, Denoiser, Part, Pipeline, TextEncoders};
use crate::job::{CheckpointPolicy, DiffusionSpec, JobSpec};
use crate::op::UNTOLD;
use crate::tensor::{Context, Tensor};

use super::frozen_dtype;

/// What makes latents and embeddings in the step, where they were not computed before.
#[derive(Default)]
pub(in super::super) struct Encoders {
    vae: Option<Vae>,
    texts: Option<TextEncoders>,
}

impl Encoders {
    pub(super) const fn vae(&self) -> Option<&Vae> {
        self.vae.as_ref()
    }

    pub(super) const fn texts(&self) -> Option<&TextEncoders> {
        self.texts.as_ref()
    }

    /// The denoiser, which `build` makes, with what is beside it, in the script's order.
    pub(in super::super) fn load(
        job: &JobSpec,
        spec: &DiffusionSpec,
        context: &Rc<Context>,
        build: impl Fn() -> Result<Denoiser, BuildError>,
    ) -> Result<(Denoiser, Self), BuildError> {
        let pipeline = Pipeline::of(&job.model);
        let (mut encoders, mut denoiser) = (Self::default(), None);
        for part in pipeline.loading_order(job.lora.is_some()) {
            match part {
                Part::Denoiser => denoiser = Some(build()?),
                Part::Vae if !spec.cache_latents => encoders.vae = Some(Vae::load(job, context, pipeline)?),
                Part::Texts if !spec.cache_text_embeddings => {
                    encoders.texts = Some(load_texts(job, context, pipeline)?);
                }
                Part::Vae | Part::Texts => {}
            }
        }
        let denoiser = denoiser.map_or_else(build, Ok)?;
        if let Some(texts) = &encoders.texts {
            texts.check(&denoiser.columns(), job.seq_len)?;
        }
        Ok((denoiser, encoders))
    }
}

/// A builder of a model beside the denoiser.
fn frozen_builder(context: &Rc<Context>, dtype: DType) -> Builder {
    Builder::new(context, dtype, None, Mode::new(false, CheckpointPolicy::Off)).frozen(true)
}

fn load_texts(job: &JobSpec, context: &Rc<Context>, pipeline: Pipeline) -> Result<TextEncoders, BuildError> {
    let dtype = frozen_dtype(job);
    let wanted = job.model.config.size("cross_attention_dim", 1280)?;
    TextEncoders::build(pipeline, (wanted, job.attention, dtype), |name| frozen_builder(context, dtype).at(name))
}

pub(super) struct Vae {
    model: AutoencoderKl,
    dtype: DType,
    is_shifted: bool,
}

impl Vae {
    fn load(job: &JobSpec, context: &Rc<Context>, pipeline: Pipeline) -> Result<Self, BuildError> {
        let (dtype, is_shifted) = (pipeline.vae_dtype(frozen_dtype(job)), pipeline.is_flow());
        let at = frozen_builder(context, dtype).at("vae");
        let model = AutoencoderKl::new(&at, pipeline.latents(&job.model)?, !is_shifted, job.attention);
        Ok(Self { model, dtype, is_shifted })
    }

    pub(super) const fn dtype(&self) -> DType {
        self.dtype
    }

    /// `vae.encode(pixel_values).latent_dist.sample()`, shifted, scaled and cast, in the variable that still holds the latents before.
    pub(super) fn encode_into(&self, pixel_values: Tensor, model_input: &mut Option<Tensor>, dtype: DType) {
        let sampled = model_input.insert(self.model.sample_latents(pixel_values)).clone();
        let scaled = {
            let shifted = if self.is_shifted { sampled.add_scalar(UNTOLD) } else { sampled.clone() };
            shifted.mul_scalar(UNTOLD)
        };
        drop(sampled);
        let scaled = model_input.insert(scaled).clone();
        let cast = scaled.to(dtype);
        *model_input = Some(cast);
    }
}
