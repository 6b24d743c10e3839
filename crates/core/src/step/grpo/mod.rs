//! GRPO as TRL's `GRPOTrainer` runs it (trl 1.16, transformers 5.17, accelerate 1.15): rollout, rewards, log-probabilities
//! of frozen models, then training passes on what was generated.

mod batch;
mod full_logits;
mod judge;
mod logps;
mod loss;
mod rollout;
mod scoring;
mod statistics;
mod trainer;
mod vllm;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::dtype::DType;
use crate::family::{self, Model, RunOptions};
use crate::job::{CheckpointPolicy, GrpoSpec, JobSpec, JudgePlace, ModelSpec};
use crate::nn::{BuildError, Builder, LigerKernels, Mode, Quantization};
use crate::tensor::Context;

use super::liger::{apply_liger_kernels, patches_layers};
use super::train::Repetition;
use super::trainer as hf_trainer;
use judge::Judge;
pub use judge::simulate_judge;
use trainer::Trainer;

/// A model and what it was built with.
pub(super) type Loaded = (Box<dyn Model>, Builder);

/// What a model that is not trained is loaded as.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    dtype: DType,
    fp32_head: bool,
    quantization: Option<Quantization>,
}

impl Kind {
    /// All of it in one dtype.
    pub(super) const fn of(dtype: DType) -> Self {
        Self { dtype, fp32_head: false, quantization: None }
    }

    const fn quantized(quantization: Quantization) -> Self {
        Self { quantization: Some(quantization), ..Self::of(DType::Bfloat16) }
    }
}

/// The policy, as it was built.
pub(super) struct Policy<'a> {
    pub model: &'a dyn Model,
    pub builder: &'a Builder,
}

/// Puts the other models beside the policy and trains.
pub(super) fn train(
    job: &JobSpec,
    spec: &GrpoSpec,
    context: &Rc<Context>,
    policy: &Policy,
) -> Result<Repetition, BuildError> {
    if spec.padded {
        context.pad_rows();
    }
    policy.builder.load_buffers_last();
    let resident = spec.judge.as_ref().filter(|judge| judge.place == JudgePlace::SameGpu);
    let judge_model = resident.map(|judge| Judge::load(job, context, judge)).transpose()?;
    policy.builder.load_adapters_last();
    let reference = load_reference(job, spec, context)?;
    policy.builder.cast_head()?;
    if let Some((_, builder)) = &reference {
        builder.cast_head()?;
    }
    apply_liger_kernels(job, &policy.builder.mode());
    let trainer = Trainer {
        job,
        spec,
        context,
        model: policy.model,
        mode: policy.builder.mode(),
        reference: reference.map(|(model, _)| model),
        judge_model,
        parameters: policy.builder.trainable(),
        adapters: policy.builder.adapters(),
        last_loaded_step: Cell::new(None),
        buffered_inputs: RefCell::default(),
    };
    Ok(hf_trainer::train(job, context, &trainer.parameters, &trainer))
}

/// The policy's twin that the divergence is measured from; adapters that can be switched off make one unnecessary.
fn load_reference(job: &JobSpec, spec: &GrpoSpec, context: &Rc<Context>) -> Result<Option<Loaded>, BuildError> {
    let is_needed = spec.beta != 0.0 && job.lora.is_none();
    let kind = Kind { fp32_head: spec.cast_lm_head_to_fp32, ..Kind::of(job.precision.weight_dtype()) };
    is_needed.then(|| load(job, context, ("reference", &job.model), kind)).transpose()
}

/// A model that is not trained, whose module paths begin with its role.
pub(super) fn load(
    job: &JobSpec,
    context: &Rc<Context>,
    (role, model): (&str, &ModelSpec),
    kind: Kind,
) -> Result<Loaded, BuildError> {
    let mode = Mode::new(false, CheckpointPolicy::Off).with_fp32_head(kind.fp32_head);
    let builder = Builder::new(context, kind.dtype, None, mode).at(role).quantized(kind.quantization);
    let options = RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: false };
    let built = (family::find(&model.model_type)?.build)(model, &builder, &options)?;
    if patches_layers(job) && model.model_type == job.model.model_type {
        builder.mode().apply_liger_kernels(LigerKernels::Rope);
    }
    builder.load_buffers_last();
    Ok((built, builder))
}
