//! Flow matching, as the scripts of Flux and SD3 train it: latents go to noise on a straight line, whose direction is learnt.

use crate::dtype::DType;
use crate::family::{Denoiser, FluxCall, FluxTransformer, Sd3Transformer};
use crate::op::{full, number_from_host};
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

use super::{Batch, Run, Script};

/// Steps of the scheduler, each with its sigma.
const TRAIN_TIMESTEPS: u64 = 1000;

/// The variables of the loop.
#[derive(Default)]
pub(super) struct Flow {
    text_ids: Option<Tensor>,
    batch: Option<Batch>,
    pixel_values: Option<Tensor>,
    prompt_embeds: Option<Tensor>,
    pooled: Option<Tensor>,
    model_input: Option<Tensor>,
    latent_image_ids: Option<Tensor>,
    noise: Option<Tensor>,
    timesteps: Option<Tensor>,
    sigmas: Option<Tensor>,
    noisy_model_input: Option<Tensor>,
    packed: Option<Tensor>,
    guidance: Option<Tensor>,
    model_pred: Option<Tensor>,
    weighting: Option<Tensor>,
    target: Option<Tensor>,
    loss: Option<Tensor>,
}

impl Script for Flow {
    fn begin(&mut self, run: &Run) {
        if let (Denoiser::Flux(_), None) = (run.denoiser, run.encoders.texts()) {
            self.text_ids = Some(full(run.context, "_to_copy.default", &[run.job.seq_len, 3], run.dtype));
        }
    }

    fn load_batch(&mut self, run: &Run) {
        self.batch = Some(run.make_batch());
    }

    fn compute_loss(&mut self, run: &Run) -> Option<Tensor> {
        self.take_input(run)?;
        let model_input = self.model_input.clone()?;
        if let Denoiser::Flux(_) = run.denoiser {
            let tokens = (run.side / 2) * (run.side / 2);
            self.latent_image_ids = Some(full(run.context, "_to_copy.default", &[tokens, 3], run.dtype));
        }
        let noise = self.noise.insert(model_input.map("randn_like.default", run.dtype)).clone();
        let timesteps = full(run.context, "_to_copy.default", &[run.job.micro_batch_size], DType::Float32);
        self.timesteps = Some(timesteps.clone());
        let sigmas = self.sigmas.insert(get_sigmas(run)).clone();
        let noisy = {
            let kept = {
                let rest = sigmas.rsub_scalar(1.0);
                &rest * &model_input
            };
            let added = &sigmas * &noise;
            &kept + &added
        };
        self.noisy_model_input = Some(noisy.clone());
        let target = match run.denoiser {
            Denoiser::Flux(flux) => {
                self.predict_flux(run, flux)?;
                self.weighting = Some(sigmas.ones_like());
                &noise - &model_input
            }
            Denoiser::Sd3(sd3) => {
                self.predict_sd3(run, sd3)?;
                self.weighting = Some(sigmas.ones_like());
                model_input
            }
            Denoiser::UNet(_) => return None,
        };
        self.target = Some(target);
        let loss = flow_loss(self.model_pred.as_ref()?, self.target.as_ref()?, self.weighting.as_ref()?);
        self.loss = Some(loss.clone());
        Some(loss)
    }
}

impl Flow {
    /// Latents and embeddings, as they came or are made now.
    fn take_input(&mut self, run: &Run) -> Option<()> {
        let batch = self.batch.clone()?;
        let is_whole = run.job.lora.is_none();
        if is_whole {
            self.load_pixels(run, &batch);
        }
        let embedded = run.embed(&batch)?;
        (self.prompt_embeds, self.pooled) = (Some(embedded.prompt_embeds), embedded.pooled);
        if let Some(text_ids) = embedded.text_ids {
            self.text_ids = Some(text_ids);
        }
        if !is_whole {
            self.load_pixels(run, &batch);
        }
        match (run.encoders.vae(), &self.pixel_values) {
            (Some(vae), Some(pixels)) => vae.encode_into(pixels.clone(), &mut self.model_input, run.dtype),
            _ => self.model_input = Some(batch.image),
        }
        Some(())
    }

    /// `batch["pixel_values"].to(dtype=vae.dtype)`, which the scripts of whole training do before all else.
    fn load_pixels(&mut self, run: &Run, batch: &Batch) {
        if let Some(vae) = run.encoders.vae() {
            self.pixel_values = Some(batch.image.to(vae.dtype()));
        }
    }

    /// The prediction of Flux, whose latents are packed into tokens of two by two.
    fn predict_flux(&mut self, run: &Run, flux: &FluxTransformer) -> Option<()> {
        let noisy = self.noisy_model_input.as_ref()?;
        let (rows, channels, side) = (noisy.size(0), noisy.size(1), run.side / 2);
        self.packed = Some(noisy.rearranged(&[rows, side * side, channels * 4]));
        if flux.has_guidance() {
            let guidance = number_from_host(run.context, "_to_copy.default", 3.5, DType::Float32);
            self.guidance = Some(guidance.expand(&[rows]));
        }
        run.context.phase(PhaseKind::Forward);
        let timestep = self.timesteps.as_ref()?.div_scalar(1000.0);
        let sizes = *self.model_input.as_ref()?.sizes();
        let call = FluxCall {
            hidden_states: self.packed.as_ref()?,
            timestep: &timestep,
            guidance: self.guidance.as_ref(),
            pooled_projections: self.pooled.as_ref()?,
            encoder_hidden_states: self.prompt_embeds.as_ref()?,
            txt_ids: self.text_ids.as_ref()?,
            img_ids: self.latent_image_ids.as_ref()?,
        };
        let packed = run.predict(|| flux.forward(&call));
        drop(timestep);
        let packed = self.model_pred.insert(packed).clone();
        let unpacked = packed.rearranged(&sizes);
        drop(packed);
        self.model_pred = Some(unpacked);
        Some(())
    }

    /// The prediction of SD3, from which latents follow.
    fn predict_sd3(&mut self, run: &Run, sd3: &Sd3Transformer) -> Option<()> {
        let (noisy, timesteps) = (self.noisy_model_input.as_ref()?, self.timesteps.as_ref()?);
        let embeds = [self.prompt_embeds.as_ref()?, self.pooled.as_ref()?];
        run.context.phase(PhaseKind::Forward);
        let predicted = run.predict(|| sd3.forward(noisy, timesteps, embeds));
        let predicted = self.model_pred.insert(predicted).clone();
        let latents = {
            let scaled = {
                let negated = self.sigmas.as_ref()?.neg();
                &predicted * &negated
            };
            &scaled + noisy
        };
        drop(predicted);
        self.model_pred = Some(latents);
        Some(())
    }
}

/// The sigma of each row, as four dimensions.
fn get_sigmas(run: &Run) -> Tensor {
    let load = |count, dtype| full(run.context, "_to_copy.default", &[count], dtype);
    let _sigmas = load(TRAIN_TIMESTEPS, run.dtype);
    let schedule_timesteps = load(TRAIN_TIMESTEPS, DType::Float32);
    for _row in 0..run.job.micro_batch_size.min(64) {
        schedule_timesteps.map("eq.Tensor", DType::Bool);
    }
    let _indices = load(run.job.micro_batch_size, DType::Int64);
    let sigma = full(run.context, "index.Tensor", &[run.job.micro_batch_size], run.dtype);
    sigma.view(&[run.job.micro_batch_size, 1, 1, 1])
}

/// `mean(weighting * (prediction - target) ** 2)` of each row, and of all.
fn flow_loss(model_pred: &Tensor, target: &Tensor, weighting: &Tensor) -> Tensor {
    let of_rows = {
        let weighted = {
            let weighting = weighting.float();
            let squares = {
                let differences = &model_pred.float() - &target.float();
                differences.pow_scalar(2.0)
            };
            &weighting * &squares
        };
        weighted.reshape(&[weighted.size(0), weighted.numel() / weighted.size(0)]).mean_without(1)
    };
    of_rows.mean()
}
