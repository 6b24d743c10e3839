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
use crate::optimizer::{self, GradScaler, Optimizer};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::repetition::Repetition;
use super::settled::{Piece, Settled};
use super::train::{PASSES_RUN, STEPS_RUN};
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
    parameters: &[Tensor],
) -> Repetition {
    let run = Run { job, context, denoiser, encoders, side: spec.resolution / 8, dtype: frozen_dtype(job) };
    let mut script: Box<dyn Script> = match denoiser {
        Denoiser::Flux(_) | Denoiser::Sd3(_) => Box::new(Flow::default()),
        Denoiser::UNet(_) => Box::new(Noise::default()),
    };
    script.begin(&run);
    let mut trainer = Trainer {
        optimizer: optimizer::build(job.optimizer, parameters),
        scaler: job.precision.scales_loss().then(|| GradScaler::new(context)),
        parameters,
    };
    let mut repetition = Repetition::begin(job.gradient_accumulation_steps);
    let mut settled = Settled::new(job, context);
    for step in 1..=job.steps {
        if settled.is_enough(Piece::Step, u64::from(job.steps - step + 1)) && step > STEPS_RUN {
            break;
        }
        repetition.steps = step;
        settled.begin_step();
        context.begin_step(step);
        for pass in 1..=job.gradient_accumulation_steps {
            let left = job.gradient_accumulation_steps - pass;
            let leaves_out = settled.is_enough(Piece::Pass, left) && pass >= PASSES_RUN;
            let begun = context.phases();
            context.phase(PhaseKind::Input);
            script.load_batch(&run);
            let Some(loss) = script.compute_loss(&run) else { break };
            trainer.backward(context, &loss);
            if leaves_out {
                repetition.passes = repetition.passes.min(pass);
                context.count_phases_again(begun..context.phases(), left);
                break;
            }
        }
        trainer.update_parameters(job, context);
    }
    context.end();
    settled.close(repetition)
}

/// accelerate's optimizer and scaler.
struct Trainer<'a> {
    optimizer: Box<dyn Optimizer>,
    scaler: Option<GradScaler>,
    parameters: &'a [Tensor],
}

impl Trainer<'_> {
    /// `accelerator.backward(loss)`, which divides it by the number of passes whatever that is.
    fn backward(&mut self, context: &Rc<Context>, loss: &Tensor) {
        context.phase(PhaseKind::Backward);
        let loss = loss.div_scalar(UNTOLD);
        match &mut self.scaler {
            Some(scaler) => scaler.scale(&loss).backward(),
            None => loss.backward(),
        }
    }

    fn update_parameters(&mut self, job: &JobSpec, context: &Rc<Context>) {
        if job.clip_grad_norm.is_some() {
            context.phase(PhaseKind::Clip);
            if let Some(scaler) = &mut self.scaler {
                scaler.unscale();
            }
            optimizer::clip_grad_norm(self.parameters);
        }
        context.phase(PhaseKind::Optimizer);
        match &mut self.scaler {
            Some(scaler) => {
                scaler.step(self.optimizer.as_mut());
                scaler.update();
            }
            None => self.optimizer.step(),
        }
        context.phase(PhaseKind::ZeroGrad);
        self.parameters.iter().for_each(|parameter| parameter.set_grad(None));
    }
}
