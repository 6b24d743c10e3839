//! Models beside the one that is trained, and the one that is counted.

use std::rc::Rc;

use crate::building::{BuildError, Builder, LigerKernels, Mode, Quantization};
use crate::dtype::DType;
use crate::family::{self, Build};
use crate::gpu::Device;
use crate::job::{Attention, CheckpointPolicy, JobSpec, ModelSpec};
use crate::model::family::{Model, RunOptions};
use crate::parallel::{self, Rebuild};
use crate::tensor::Context;

use super::liger::patches_layers;
use super::loading;
use super::simulation::SimulateError;
use super::wrapped::Wrapped;

/// A model and what it was built with.
pub(super) type Loaded = (Box<dyn Model>, Builder);

/// The policy, as it was built.
pub(super) struct Policy<'a> {
    pub model: Rc<dyn Model>,
    pub builder: &'a Builder,
    pub rebuild: Rebuild,
}

impl Policy<'_> {
    /// What is wrapped of it, once its parameters are what is trained.
    pub(super) fn into_loaded(self) -> parallel::Loaded {
        parallel::Loaded::new(self.model, self.builder, self.rebuild)
    }
}

/// What a model that is not trained is loaded as.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub dtype: DType,
    pub fp32_head: bool,
    pub quantization: Option<Quantization>,
    /// Loaded as the policy is: by a `device_map` where the job says so.
    pub by_trainer: bool,
    /// Made on the host and moved by `model.to`, which takes buffers with their modules.
    pub is_moved: bool,
}

impl Kind {
    /// All of it in one dtype.
    pub(super) const fn of(dtype: DType) -> Self {
        Self { dtype, fp32_head: false, quantization: None, by_trainer: false, is_moved: false }
    }

    /// The same, loaded by the trainer.
    pub(super) const fn by_trainer(self) -> Self {
        Self { by_trainer: true, ..self }
    }

    /// The same, made on the host.
    pub(super) const fn moved(self) -> Self {
        Self { is_moved: true, ..self }
    }

    pub(super) const fn quantized(quantization: Quantization) -> Self {
        Self { quantization: Some(quantization), ..Self::of(DType::Bfloat16) }
    }
}

/// A model that is not trained, whose module paths begin with its role.
pub(super) fn load_model(
    job: &JobSpec,
    context: &Rc<Context>,
    (role, model): (&str, &ModelSpec),
    kind: Kind,
) -> Result<Loaded, BuildError> {
    let (built, builder, _) = build_model(job, context, (role, model), kind)?;
    Ok((built, builder))
}

/// The policy's twin that is not trained, as the trainer prepares it at once.
pub(super) fn load_reference<'a>(
    job: &'a JobSpec,
    context: &'a Rc<Context>,
    fp32_head: bool,
) -> Result<Wrapped<'a>, BuildError> {
    let kind = Kind { fp32_head, ..Kind::of(job.precision.weight_dtype()).by_trainer() };
    let (model, builder, rebuild) = build_model(job, context, ("reference", &job.model), kind)?;
    builder.cast_head()?;
    Ok(Wrapped::frozen(job, context, parallel::Loaded::new(model, &builder, rebuild)))
}

fn build_model(
    job: &JobSpec,
    context: &Rc<Context>,
    (role, model): (&str, &ModelSpec),
    kind: Kind,
) -> Result<(Box<dyn Model>, Builder, Rebuild), BuildError> {
    let mode = Mode::new(false, CheckpointPolicy::Off).with_fp32_head(kind.fp32_head);
    let builder = Builder::new(context, kind.dtype, None, mode).at(role).quantized(kind.quantization);
    let builder = builder.sharded(parallel::sharding_of(job).filter(|_| kind.by_trainer));
    let builder = builder.made_in_fp32(kind.by_trainer && parallel::casts_all_weights(job));
    let builder = builder.in_parts(parallel::parts_of(job).filter(|_| kind.by_trainer));
    let builder = builder.loading_by_name(kind.by_trainer && loading::is_by_name(job));
    let family = family::find_family(&model.model_type)?;
    if kind.by_trainer && loading::is_by_device_map(job) {
        loading::warm_up(job, context, (model, family), kind.dtype)?;
    }
    let options = RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: false, tower: None };
    let built = family.build_language_model(model, &builder, &options)?;
    if patches_layers(job) && model.model_type == job.model.model_type {
        builder.mode().apply_liger_kernels(LigerKernels::Rope);
    }
    if !kind.is_moved {
        builder.load_buffers_last();
    }
    builder.load_by_name();
    let spec = model.clone();
    let rebuild: Rebuild = Box::new(move |builder| family.build_language_model(&spec, builder, &options));
    Ok((built, builder, rebuild))
}

/// Parameters of `model` on one device and without adapters, tied ones once.
///
/// # Errors
/// When its family cannot build it.
pub fn parameter_count(model: &ModelSpec) -> Result<u64, SimulateError> {
    let context = Context::new(Device { compute_capability: (8, 0), multiprocessors: 108 });
    let mode = Mode::new(false, CheckpointPolicy::Off);
    let builder = Builder::new(&context, DType::Bfloat16, None, mode);
    let options = RunOptions { attention: Attention::Sdpa, mode: builder.mode(), frozen_base: false, tower: None };
    let family = family::find_family(&model.model_type)?;
    match family.build {
        Build::Denoiser(build) => drop(build(model, &builder, Attention::Sdpa)?),
        _ => drop(family.build_language_model(model, &builder, &options)?),
    }
    Ok(builder.parameter_count())
}
