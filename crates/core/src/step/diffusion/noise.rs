//! Noise as DDPM's scheduler adds it, which the UNet of Stable Diffusion learns to tell.

use crate::dtype::DType;
use crate::family::{Denoiser, UNetCall};
use crate::op::{ReduceKind, cat, full};
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

use super::{Batch, Run, Script};

/// Steps of the scheduler.
const TRAIN_TIMESTEPS: u64 = 1000;
/// Sizes that the UNet of SDXL is told of an image: its own, where it was cut, and what it is trained at.
const TIME_IDS: u64 = 6;

/// The variables of the loop.
#[derive(Default)]
pub(super) struct Noise {
    /// The scheduler's, which stay on the device.
    alphas_cumprod: Option<Tensor>,
    batch: Option<Batch>,
    model_input: Option<Tensor>,
    noise: Option<Tensor>,
    timesteps: Option<Tensor>,
    noisy_model_input: Option<Tensor>,
    add_time_ids: Option<Tensor>,
    prompt_embeds: Option<Tensor>,
    pooled: Option<Tensor>,
    model_pred: Option<Tensor>,
    target: Option<Tensor>,
    loss: Option<Tensor>,
    avg_loss: Option<Tensor>,
}

impl Script for Noise {
    fn load_batch(&mut self, run: &Run) {
        self.batch = Some(run.make_batch());
    }

    fn compute_loss(&mut self, run: &Run) -> Option<Tensor> {
        let Denoiser::UNet(unet) = run.denoiser else { return None };
        let batch = self.batch.clone()?;
        let rows = run.job.micro_batch_size;
        match run.encoders.vae() {
            Some(vae) => vae.encode_into(batch.image.to(vae.dtype()), &mut self.model_input, run.dtype),
            None => self.model_input = Some(batch.image.clone()),
        }
        let model_input = self.model_input.clone()?;
        let noise = self.noise.insert(model_input.map("randn_like.default", run.dtype)).clone();
        let timesteps = self.timesteps.insert(full(run.context, "randint.low", &[rows], DType::Int64)).clone();
        let noisy = self.add_noise(run, &model_input, &noise);
        self.noisy_model_input = Some(noisy.clone());
        let is_sdxl = run.denoiser.columns().pooled.is_some();
        if is_sdxl {
            if run.encoders.texts().is_none() {
                self.pooled = None;
            }
            let ids = |_| full(run.context, "_to_copy.default", &[1, TIME_IDS], run.dtype);
            let ids: Vec<Tensor> = (0..rows).map(ids).collect();
            self.add_time_ids = Some(cat(&ids.iter().collect::<Vec<_>>(), 0));
        }
        self.embed(run, &batch)?;
        let call = UNetCall {
            sample: &noisy,
            timesteps: &timesteps,
            encoder_hidden_states: self.prompt_embeds.as_ref()?,
            added: self.pooled.as_ref().zip(self.add_time_ids.as_ref()).map(|(text, ids)| [text, ids]),
        };
        run.context.phase(PhaseKind::Forward);
        let model_pred = self.model_pred.insert(run.predict(|| unet.forward(&call)));
        let target = self.target.insert(noise);
        let loss = model_pred.float().mse_loss(&target.float());
        self.loss = Some(loss.clone());
        let avg_loss = {
            let repeated = full(run.context, "repeat.default", &[rows], DType::Float32);
            repeated.reduce_all("mean.default", ReduceKind::Mean, DType::Float32)
        };
        self.avg_loss = Some(avg_loss);
        Some(loss)
    }
}

impl Noise {
    fn embed(&mut self, run: &Run, batch: &Batch) -> Option<()> {
        let embedded = run.embed(batch)?;
        (self.prompt_embeds, self.pooled) = (Some(embedded.prompt_embeds), embedded.pooled);
        Some(())
    }

    /// `noise_scheduler.add_noise(model_input, noise, timesteps)`
    fn add_noise(&mut self, run: &Run, model_input: &Tensor, noise: &Tensor) -> Tensor {
        let load = || full(run.context, "_to_copy.default", &[TRAIN_TIMESTEPS], DType::Float32);
        let _alphas_cumprod = self.alphas_cumprod.get_or_insert_with(load).to(run.dtype);
        let rows = run.job.micro_batch_size;
        let take = || full(run.context, "index.Tensor", &[rows], run.dtype);
        let root = |taken: Tensor| taken.map("pow.Tensor_Scalar", run.dtype).view(&[rows, 1, 1, 1]);
        let kept = root(take());
        let rest = {
            let taken = take();
            taken.rsub_scalar(1.0)
        };
        let added = root(rest);
        let first = &kept * model_input;
        &first + &(&added * noise)
    }
}
