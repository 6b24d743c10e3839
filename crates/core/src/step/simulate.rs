//! [`simulate`]: a job spec becomes a trace.

use std::rc::Rc;

use crate::dtype::DType;
use crate::family::{self, Family, Model, RunOptions};
use crate::gpu::Device;
use crate::job::{Attention, CheckpointPolicy, JobError, JobSpec, ModelSpec, Task, check};
use crate::nn::{BuildError, Builder, Mode};
use crate::op::full;
use crate::parallel::{self, Loaded, Rebuild};
use crate::tensor::{Context, Tensor};
use crate::trace::Trace;
use crate::work::Work;

use super::fine_tune::TrainingLoop;
use super::liger::apply_liger_kernels;
use super::swarm::Node;
use super::train::Repetition;
use super::{agi2, dpo, fine_tune, grpo, hrm, infer, train};

/// Why a job cannot be simulated.
pub type SimulateError = BuildError;

/// A simulated job.
pub struct Simulation {
    /// Every allocation and free.
    pub trace: Trace,
    /// Parameters of the model, tied ones once, adapters included.
    pub parameter_count: u64,
    /// Parameters that are trained.
    pub trainable_count: u64,
    /// How much of the training was run; `None` when nothing is trained.
    pub repetition: Option<Repetition>,
    /// What is computed and moved, phase by phase.
    pub work: Work,
    /// For each of the other devices that were asked about, sizes by [`Allocation::sizes`](crate::trace::Allocation::sizes)
    /// less one; `None` where it runs another program.
    pub sizes: Vec<Option<Vec<u64>>>,
}

/// Runs `job` on abstract tensors.
///
/// # Errors
/// When the model's config is not one its family can build, or the job is one that PyTorch refuses.
pub fn simulate(job: &JobSpec) -> Result<Simulation, SimulateError> {
    simulate_with_kin(job, &[])
}

/// The same, noting what other devices would allocate instead, as far as they run the same program.
///
/// # Errors
/// As above, on the job's own device.
pub fn simulate_with_kin(job: &JobSpec, kin: &[Device]) -> Result<Simulation, SimulateError> {
    check::possible(job)?;
    let job = &parallel::as_run(job);
    let context = Context::with_kin(job.gpu.device(), kin);
    context.install_transformers(job.transformers);
    let _device = context.enter_device(parallel::holds_model(job.parallel));
    if job.task == Task::Hrm {
        return reason(job, &context);
    }
    if family::agi2::is_one(&job.model) {
        return small_gpt(job, &context);
    }
    let family = family::find(&job.model.model_type)?;
    family::bound_activations(job)?;
    let fp32_head = matches!(&job.task, Task::Grpo(spec) if spec.cast_lm_head_to_fp32);
    let mode = Mode::new(job.train_mode && job.task.trains(), job.gradient_checkpointing).with_fp32_head(fp32_head);
    let builder = Builder::new(&context, job.precision.weight_dtype(), job.lora.clone(), mode);
    let builder = builder.materialized(job.materialized).sharded(parallel::sharding(job));
    let options = RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: job.lora.is_some() };
    let spec = parallel::share(job)?;
    if job.device_map {
        warm_up(job, &context, &spec, family)?;
    }
    let model = (family.build)(&spec, &builder, &options)?;
    builder.check_targets()?;
    builder.materialize_buffers();
    let build = family.build;
    let rebuild: Rebuild = Box::new(move |builder| build(&spec, builder, &options));
    let trainable_count = builder.trainable().iter().map(Tensor::numel).sum();
    let begun =
        Begun { job, context: &context, builder: &builder, has_begin_token: has_begin_token(&job.model, family) };
    let repetition = begun.run(model, rebuild)?;
    if let Some(error) = context.take_failure() {
        return Err(error.into());
    }
    let work = Work { phases: context.take_work(), cycle: cycle(job) };
    Ok(Simulation {
        work,
        trace: context.take_trace(),
        parameter_count: builder.parameter_count(),
        trainable_count,
        repetition,
        sizes: context.take_sizes(),
    })
}

/// A model that was built, and what its task needs beside it.
struct Begun<'a> {
    job: &'a JobSpec,
    context: &'a Rc<Context>,
    builder: &'a Builder,
    has_begin_token: bool,
}

impl Begun<'_> {
    /// Runs the task; `None` where it trains nothing.
    fn run(&self, model: Box<dyn Model>, rebuild: Rebuild) -> Result<Option<Repetition>, SimulateError> {
        let Self { job, context, builder, has_begin_token } = *self;
        Ok(match &job.task {
            Task::CausalLm | Task::MaskedLm if fine_tune::training_loop(job) == TrainingLoop::Own => {
                Some(fine_tune::train(job, context, builder, Loaded::new(model, builder, rebuild)))
            }
            Task::CausalLm | Task::MaskedLm => {
                apply_liger_kernels(job, &builder.mode());
                let wrapper = parallel::wrap(job, context, Loaded::new(model, builder, rebuild));
                Some(train::train(job, context, wrapper.as_ref()))
            }
            Task::InferenceForward => {
                infer::inference_forward(job, context, model.as_ref());
                None
            }
            Task::Generate => {
                infer::generate(job, context, model.as_ref(), has_begin_token);
                None
            }
            Task::Grpo(spec) => {
                Some(grpo::train(job, spec, context, &grpo::Policy { model: model.as_ref(), builder })?)
            }
            Task::Swarm(swarm) => {
                let (mode, parameters) = (&builder.mode(), &builder.trainable());
                let model = model.as_ref();
                Some(Node { job, swarm, context, model, mode, parameters, has_begin_token }.run())
            }
            Task::Dpo(spec) => Some(dpo::train(job, spec, context, &dpo::Policy { model: model.as_ref(), builder })?),
            Task::Hrm => return Err(JobError::new("this task is not simulated yet").into()),
        })
    }
}

/// Parameters of `model` on one device and without adapters, tied ones once.
///
/// # Errors
/// When its family cannot build it.
pub fn parameter_count(model: &ModelSpec) -> Result<u64, SimulateError> {
    let context = Context::new(Device { compute_capability: (8, 0), multiprocessors: 108 });
    let mode = Mode::new(false, CheckpointPolicy::Off);
    let builder = Builder::new(&context, DType::Bfloat16, None, mode);
    let options = RunOptions { attention: Attention::Sdpa, mode: builder.mode(), frozen_base: false };
    (family::find(&model.model_type)?.build)(model, &builder, &options)?;
    Ok(builder.parameter_count())
}

/// 1.2 GiB of the device, which `caching_allocator_warmup` leaves free (transformers/modeling_utils.py).
const NOT_WARMED: u64 = 1_288_490_188;

/// `caching_allocator_warmup`: one block of the size of all parameters, given back to the allocator at once.
fn warm_up(job: &JobSpec, context: &Rc<Context>, spec: &ModelSpec, family: &Family) -> Result<(), SimulateError> {
    if !job.transformers.warms_allocator_up() {
        return Ok(());
    }
    let elsewhere = Context::new(job.gpu.device());
    elsewhere.install_transformers(job.transformers);
    let builder = Builder::new(&elsewhere, job.precision.weight_dtype(), None, Mode::new(false, CheckpointPolicy::Off));
    let options = RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: false };
    (family.build)(spec, &builder, &options)?;
    let bytes: u64 = builder.parameters().iter().map(Tensor::bytes).sum();
    let bytes = bytes.min(job.gpu.usable_bytes.saturating_sub(NOT_WARMED));
    full(context, "empty.memory_format", &[bytes / 2], DType::Float16);
    Ok(())
}

/// Trains the hierarchical reasoning model, whose buffers are sized by the batch.
fn reason(job: &JobSpec, context: &Rc<Context>) -> Result<Simulation, SimulateError> {
    let mode = Mode::new(true, CheckpointPolicy::Off);
    let builder = Builder::new(context, DType::Float32, None, mode);
    let model = family::hrm::build(&job.model.config, &builder, job.micro_batch_size, job.seq_len)?;
    let parameters = builder.trainable();
    let repetition = hrm::train(job, context, &model, &parameters);
    let work = Work { phases: context.take_work(), cycle: 1 };
    Ok(Simulation {
        work,
        trace: context.take_trace(),
        parameter_count: builder.parameter_count(),
        trainable_count: parameters.iter().map(Tensor::numel).sum(),
        repetition: Some(repetition),
        sizes: context.take_sizes(),
    })
}

/// Trains AGI2's small GPT in that trainer's own loop.
fn small_gpt(job: &JobSpec, context: &Rc<Context>) -> Result<Simulation, SimulateError> {
    family::bound_activations(job)?;
    let mode = Mode::new(job.train_mode, job.gradient_checkpointing);
    let builder = Builder::new(context, job.precision.weight_dtype(), None, mode);
    let model = family::agi2::build(job, &builder)?;
    let parameters = builder.trainable();
    let repetition = agi2::train(job, context, &model, &parameters);
    Ok(Simulation {
        work: Work { phases: context.take_work(), cycle: 1 },
        trace: context.take_trace(),
        parameter_count: builder.parameter_count(),
        trainable_count: parameters.iter().map(Tensor::numel).sum(),
        repetition: Some(repetition),
        sizes: context.take_sizes(),
    })
}

/// After how many optimizer steps a job generates at the same point of a step again.
fn cycle(job: &JobSpec) -> u32 {
    let Task::Grpo(spec) = &job.task else { return 1 };
    let every = spec.steps_per_generation.saturating_mul(spec.num_iterations).max(1);
    let passes = job.gradient_accumulation_steps.max(1);
    u32::try_from(every / greatest_common_divisor(every, passes)).unwrap_or(u32::MAX)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

pub(super) fn input_ids(context: &Rc<Context>, rows: u64, tokens: u64) -> Tensor {
    let _category = context.enter_category(crate::trace::Category::Input);
    full(context, "_to_copy.default", &[rows, tokens], DType::Int64)
}

/// Whether the model's config, and so its generation config, names a begin token.
pub(super) fn has_begin_token(model: &ModelSpec, family: &Family) -> bool {
    match model.config.0.get("bos_token_id") {
        Some(id) => !id.is_null(),
        None => family.has_begin_token,
    }
}
