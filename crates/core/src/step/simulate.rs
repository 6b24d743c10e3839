//! [`simulate`]: a job spec becomes a trace.

use std::cell::RefCell;
use std::rc::Rc;

use crate::building::{BuildError, Builder, Mode};
use crate::dtype::DType;
use crate::family::{self, Build, Denoiser, Family};
use crate::gpu::Device;
use crate::job::{Attention, CheckpointPolicy, JobError, JobSpec, Kernel, ModelSpec, ShardInit, Task, check};
use crate::model::family::{Model, RunOptions};
use crate::optimizer::Average;
use crate::parallel::{self, Rebuild};
use crate::tensor::{Context, Tensor};
use crate::work::Work;

use super::fine_tune::TrainingLoop;
use super::inputs::has_begin_token;
use super::liger::apply_liger_kernels;
use super::loading;
use super::models::Policy;
use super::repetition::Repetition;
use super::simulation::{SimulateError, Simulation};
use super::swarm::Node;
use super::{
    agi2, diffusion, dpo, embedding, fine_tune, gkd, grpo, hrm, infer, kto, pairs, pipeline, ppo, reward, train,
};

/// Runs `job` on abstract tensors.
///
/// # Errors
/// When the model's config is not one its family can build, or the job is one that PyTorch refuses.
pub fn simulate(job: &JobSpec) -> Result<Simulation, SimulateError> {
    simulate_with_other_devices(job, &[], 1)
}

/// The same, noting what other devices would allocate instead, as far as they run the same program. Where many `replays` serve one
/// question, fewer tokens of very long generations are run, as each replay leaves out more of them.
///
/// # Errors
/// As above, on the job's own device.
pub fn simulate_with_other_devices(
    job: &JobSpec,
    others: &[Device],
    replays: u64,
) -> Result<Simulation, SimulateError> {
    simulate_in(&context_for(job, others, replays), job, others.len())
}

/// An attempt: beside the error stands how many events were simulated in vain.
///
/// # Errors
/// When the model's config is not one its family can build, or the job is refused or more than is simulated.
pub fn try_to_simulate(job: &JobSpec, others: &[Device], replays: u64) -> Result<Simulation, (SimulateError, usize)> {
    let context = context_for(job, others, replays);
    simulate_in(&context, job, others.len()).map_err(|error| (error, context.events()))
}

/// Where the job is simulated.
fn context_for(job: &JobSpec, others: &[Device], replays: u64) -> Rc<Context> {
    let context = Context::with_other_devices(job.gpu.device(), others);
    context.serve_replays(replays);
    context
}

fn simulate_in(context: &Rc<Context>, job: &JobSpec, others: usize) -> Result<Simulation, SimulateError> {
    check::check_possible(job)?;
    let job = &parallel::as_run(job);
    if job.simulated_offload().is_some() {
        // What moves depends on where the allocator places it.
        (0..others).for_each(|at| context.diverges(at));
    }
    context.install_transformers(job.transformers);
    context.reenter_checkpoints(job.use_reentrant);
    context.find_places_first(job.places_first);
    let _device = context.enter_device(parallel::holds_model(job.parallel));
    let family = family::find_family(&job.model.model_type)?;
    match family.build {
        Build::LanguageModel(_) => language_model(job, context, family),
        Build::Hrm(build) => {
            let builder = Builder::new(context, DType::Float32, None, Mode::new(true, CheckpointPolicy::Off));
            let model = build(job, &builder)?;
            Ok(own_loop(context, &builder, |parameters| hrm::train_hrm(job, context, &model, parameters)))
        }
        Build::Denoiser(build) => denoiser(job, context, build),
        Build::Agi2(build) => {
            let mode = Mode::new(job.train_mode, job.gradient_checkpointing);
            let builder = Builder::new(context, job.precision.weight_dtype(), None, mode);
            let model = build(job, &builder)?;
            Ok(own_loop(context, &builder, |parameters| agi2::train_agi2(job, context, &model, &builder, parameters)))
        }
    }
}

/// Trains a model in the one loop that its family has.
fn own_loop(context: &Rc<Context>, builder: &Builder, train: impl FnOnce(&[Tensor]) -> Repetition) -> Simulation {
    let parameters = builder.trainable();
    let repetition = train(&parameters);
    Simulation {
        work: Work { phases: context.take_work(), cycle: 1 },
        trace: context.take_trace(),
        parameter_count: builder.parameter_count(),
        trainable_count: parameters.iter().map(Tensor::numel).sum(),
        managed_bytes: context.managed(),
        host: context.host_memory(),
        repetition: Some(repetition),
        other_sizes: context.take_sizes(),
    }
}

/// Trains a denoiser; with adapters what is frozen is in the dtype of mixed precision, and so are adapters but in fp16.
fn denoiser(
    job: &JobSpec,
    context: &Rc<Context>,
    build: fn(&ModelSpec, &Builder, Attention) -> Result<Denoiser, BuildError>,
) -> Result<Simulation, SimulateError> {
    let Task::Diffusion(spec) = &job.task else {
        return Err(
            JobError::new(format!("`{}` is trained by task = \"diffusion\" alone", job.model.model_type)).into()
        );
    };
    let frozen = diffusion::frozen_dtype(job);
    let dtype = if job.lora.is_some() { frozen } else { job.precision.weight_dtype() };
    let builder = Builder::new(context, dtype, job.lora.clone(), Mode::new(true, job.gradient_checkpointing))
        .made_in_fp32(frozen != DType::Float16);
    let average = RefCell::new(None);
    let denoiser = || {
        let denoiser = build(&job.model, &builder, job.attention)?;
        average.replace(Average::of_examples(job.ema, context, &builder.parameters()));
        Ok(denoiser)
    };
    let (model, encoders) = diffusion::Encoders::load(job, spec, context, denoiser)?;
    builder.check_targets()?;
    let average = average.into_inner();
    let train = |parameters: &[Tensor]| {
        diffusion::train_diffusion(job, spec, context, (&model, &encoders), (parameters, average))
    };
    builder.load_adapters_last();
    let simulation = own_loop(context, &builder, train);
    context.take_failure().map_or(Ok(simulation), |failure| Err(JobError::from(failure).into()))
}

/// Runs the task on a language model.
fn language_model(job: &JobSpec, context: &Rc<Context>, family: Family) -> Result<Simulation, SimulateError> {
    family::bound_activations(job)?;
    if job.padded == Some(true) {
        context.pad_rows();
    }
    context.share_tokens(job.parallel.ring());
    let fp32_head = matches!(&job.task, Task::Grpo(spec) if spec.cast_lm_head_to_fp32);
    let mode = Mode::new(job.train_mode && job.task.trains(), job.gradient_checkpointing).with_fp32_head(fp32_head);
    let builder = Builder::new(context, job.precision.weight_dtype(), job.lora.clone(), mode);
    let builder = builder.materialized(job.materialized).sharded(parallel::sharding_of(job));
    let builder = builder.made_in_fp32(parallel::casts_all_weights(job)).in_parts(parallel::parts_of(job));
    let builder = builder.over_ranks(job.parallel.ranks_of_layers());
    let builder = builder.replicating_adapters(job.kernels.has(Kernel::FusedLora));
    let builder = loading::quantized(builder.loading_by_name(loading::is_by_name(job)), job);
    let options =
        RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: job.lora.is_some(), tower: None };
    if check::runs_pytorch_schedule(job) {
        let build = |spec: &ModelSpec, at: &Builder| family.build_language_model(spec, at, &options);
        let pipeline = pipeline::build_stages(job, &builder, build)?;
        let trainable_count = count_elements(&builder.trainable());
        let repetition = pipeline::train_pipeline(job, context, pipeline);
        return simulated(job, context, &builder, (trainable_count, Some(repetition)));
    }
    let spec = parallel::share_of_rank(job)?;
    if loading::is_by_device_map(job) {
        loading::warm_up(job, context, (&spec, family), job.precision.weight_dtype())?;
    }
    let model = family.build_language_model(&spec, &builder, &options)?;
    builder.check_targets()?;
    if let Some(quantization) = job.quantization {
        if quantization.weights.comes_by_name() {
            builder.load_in_checkpoint_order();
        }
        if quantization.prepared {
            builder.prepare_for_kbit_training();
        }
        builder.load_adapters_last();
        if loading::casts_adapters(job) {
            builder.cast_adapters();
        }
        builder.cast_heads();
    }
    builder.materialize_buffers();
    builder.load_by_name();
    let is_sharded_after = parallel::sharding_of(job).is_some_and(|sharding| sharding.init == ShardInit::Full);
    if loading::is_by_device_map(job) || is_sharded_after {
        builder.load_adapters_last();
    }
    let rebuild: Rebuild = Box::new(move |builder| family.build_language_model(&spec, builder, &options));
    let trainable_count = count_elements(&builder.trainable());
    let repetition = run_task(job, context, &builder, model, rebuild)?;
    simulated(job, context, &builder, (trainable_count, repetition))
}

fn count_elements(tensors: &[Tensor]) -> u64 {
    tensors.iter().map(Tensor::numel).sum()
}

/// What was simulated, unless an operator refused.
fn simulated(
    job: &JobSpec,
    context: &Rc<Context>,
    builder: &Builder,
    (trainable_count, repetition): (u64, Option<Repetition>),
) -> Result<Simulation, SimulateError> {
    if let Some(failure) = context.take_failure() {
        return Err(JobError::from(failure).into());
    }
    let work = Work { phases: context.take_work(), cycle: passes_of_cycle(job) };
    Ok(Simulation {
        work,
        trace: context.take_trace(),
        parameter_count: builder.parameter_count(),
        trainable_count,
        managed_bytes: context.managed(),
        host: context.host_memory(),
        repetition,
        other_sizes: context.take_sizes(),
    })
}

/// Runs the task; `None` where it trains nothing.
fn run_task(
    job: &JobSpec,
    context: &Rc<Context>,
    builder: &Builder,
    model: Box<dyn Model>,
    rebuild: Rebuild,
) -> Result<Option<Repetition>, SimulateError> {
    let policy = Policy { model: model.into(), builder, rebuild };
    Ok(match &job.task {
        task if fine_tune::training_loop(job) == TrainingLoop::Own && task.name().has_labels() => {
            Some(fine_tune::run_fine_tune(job, context, builder, policy.into_loaded()))
        }
        Task::CausalLm
        | Task::MaskedLm
        | Task::Seq2SeqLm(_)
        | Task::SequenceClassification
        | Task::TokenClassification
        | Task::ImageClassification
        | Task::Contrastive => {
            apply_liger_kernels(job, &builder.mode());
            let loaded = policy.into_loaded();
            let average = Average::of_model(job.ema, context, (&loaded.all_parameters, &loaded.buffers));
            let wrapper = parallel::wrap_model(job, context, loaded);
            Some(train::train_loop(job, context, wrapper.as_ref(), average))
        }
        Task::InferenceForward => {
            infer::inference_forward(job, context, policy.model.as_ref());
            None
        }
        Task::Generate => {
            infer::generate_alone(job, context, policy.model.as_ref(), has_begin_token(&job.model));
            None
        }
        Task::Grpo(spec) => Some(grpo::train_grpo(job, spec, context, policy)?),
        Task::Dpo(spec) => Some(dpo::train_dpo(job, spec, context, policy)?),
        Task::Kto(spec) => Some(kto::train_kto(job, spec, context, policy)?),
        Task::Gkd(spec) => Some(gkd::train_gkd(job, spec, context, policy)?),
        Task::Ppo(spec) => Some(ppo::train_ppo(job, spec, context, policy)?),
        Task::Pairs(spec) => Some(pairs::train_pairs(job, spec, context, policy)),
        Task::Reward(spec) => Some(reward::train_reward(job, spec, context, policy)),
        Task::Embedding(spec) => Some(embedding::train_embedding(job, spec, context, policy)),
        Task::Swarm(swarm) => {
            let (mode, parameters) = (&builder.mode(), &builder.trainable());
            let has_begin_token = has_begin_token(&job.model);
            Some(
                Node { job, swarm, context, model: policy.model.as_ref(), mode, parameters, has_begin_token }
                    .run_node(),
            )
        }
        Task::Hrm => {
            check::is_hrm(job)?;
            None
        }
        Task::Diffusion(spec) => {
            check::diffusion::check_diffusion(job, spec)?;
            None
        }
    })
}

/// After how many optimizer steps a job generates at the same point of a step again.
fn passes_of_cycle(job: &JobSpec) -> u32 {
    let every = match &job.task {
        Task::Grpo(spec) => spec.steps_per_generation.saturating_mul(spec.num_iterations).max(1),
        Task::Gkd(spec) if spec.generate_every() < u64::MAX => spec.generate_every(),
        _ => return 1,
    };
    let passes = job.gradient_accumulation_steps.max(1);
    u32::try_from(every / greatest_common_divisor(every, passes)).unwrap_or(u32::MAX)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
