//! Diffusion training as the examples of diffusers do it under accelerate (examples/dreambooth/train_dreambooth_lora_flux.py, its
//! kin for SD3, examples/text_to_image/train_text_to_image*.py): noise is added to latents, and a denoiser learns to tell it.

mod encoders;
mod flow;
mod noise;

use std::rc::Rc;

use crate::dtype::DType;
use crate::family::{Columns, Denoiser, Embedded};
use crate::job::{DiffusionSpec, JobSpec};
use crate::op::{UNTOLD, full};
use crate::optimizer::Average;
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::plain_loop::{run_backward, run_plain_loop};
use super::repetition::Repetition;
pub(super) use encoders::Encoders;
use flow::Flow;
use noise::Noise;

/// The scripts' step up to its loss, with the variables that live from one pass to the next.
trait Script {
    /// What is made before the loop.
    fn begin(&mut self, _run: &Run) {}

    /// The loss of the batch that has come to the device.
    fn compute_loss(&mut self, run: &Run) -> Option<Tensor>;

    /// A pass begins: the batch comes to the device.
    fn load_batch(&mut self, run: &Run);
}

/// What all passes share.
struct Run<'a> {
    job: &'a JobSpec,
    context: &'a Rc<Context>,
    denoiser: &'a Denoiser,
    encoders: &'a Encoders,
    /// Height and width of latents.
    side: u64,
    /// `weight_dtype`: what frozen weights and inputs are in.
    dtype: DType,
}

/// Latents and embeddings that were computed before, or what they are computed of, as they come to the device.
#[derive(Clone)]
struct Batch {
    /// Latents, or pixels where there is a VAE.
    image: Tensor,
    prompt_embeds: Option<Tensor>,
    pooled_prompt_embeds: Option<Tensor>,
    /// Tokens for each text encoder.
    ids: Vec<Tensor>,
}

impl Run<'_> {
    fn make_batch(&self) -> Batch {
        let _category = self.context.enter_category(Category::Input);
        let Columns { channels, prompt, pooled } = self.denoiser.columns();
        let rows = self.job.micro_batch_size;
        let load = |sizes: &[u64]| full(self.context, "_to_copy.default", sizes, self.dtype);
        let image = match self.encoders.vae() {
            None => load(&[rows, channels, self.side, self.side]),
            Some(_) => {
                let pixels = self.side * 8;
                full(self.context, "_to_copy.default", &[rows, 3, pixels, pixels], DType::Float32)
            }
        };
        let Some(texts) = self.encoders.texts() else {
            return Batch {
                image,
                prompt_embeds: Some(load(&[rows, self.job.seq_len, prompt])),
                pooled_prompt_embeds: pooled.map(|pooled| load(&[rows, pooled])),
                ids: Vec::new(),
            };
        };
        let ids = || full(self.context, "_to_copy.default", &[rows, self.job.seq_len], DType::Int64);
        let ids = (0..texts.token_lists()).map(|_| ids()).collect();
        Batch { image, prompt_embeds: None, pooled_prompt_embeds: None, ids }
    }

    /// The embeddings of a batch's prompts, as they came or are made now.
    fn embed(&self, batch: &Batch) -> Option<Embedded> {
        if let Some(texts) = self.encoders.texts() {
            return Some(texts.encode(self.context, &batch.ids, [self.job.micro_batch_size, self.job.seq_len]));
        }
        let (prompt_embeds, pooled) = (batch.prompt_embeds.clone()?, batch.pooled_prompt_embeds.clone());
        Some(Embedded { prompt_embeds, pooled, text_ids: None })
    }

    /// The denoiser as accelerate has prepared it: under autocast, its result in fp32.
    fn predict(&self, forward: impl FnOnce() -> Tensor) -> Tensor {
        let autocast = self.job.precision.autocast_dtype();
        let output = {
            let _autocast = self.context.autocast(autocast);
            forward()
        };
        let converted = if autocast.is_some() { output.float() } else { output.clone() };
        drop(output);
        self.context.phase(PhaseKind::Loss);
        converted
    }
}

/// The dtype of frozen weights, latents and embeddings: that of mixed precision where there is one.
pub(super) fn frozen_dtype(job: &JobSpec) -> DType {
    job.precision.autocast_dtype().unwrap_or(job.precision.weight_dtype())
}

/// Trains; what only repeats is left out of a long job.
pub(super) fn train_diffusion(
    job: &JobSpec,
    spec: &DiffusionSpec,
    context: &Rc<Context>,
    (denoiser, encoders): (&Denoiser, &Encoders),
    (parameters, average): (&[Tensor], Option<Average>),
) -> Repetition {
    let run = Run { job, context, denoiser, encoders, side: spec.resolution / 8, dtype: frozen_dtype(job) };
    let mut script: Box<dyn Script> = match denoiser {
        Denoiser::Flux(_) | Denoiser::Sd3(_) => Box::new(Flow::default()),
        Denoiser::UNet(_) => Box::new(Noise::default()),
    };
    script.begin(&run);
    run_plain_loop(job, context, (parameters, average), &mut |scaler| {
        script.load_batch(&run);
        let loss = script.compute_loss(&run)?;
        // `accelerator.backward(loss)` divides it by the number of passes whatever that is.
        context.phase(PhaseKind::Backward);
        run_backward(&loss.div_scalar(UNTOLD), scaler);
        Some(())
    })
}
