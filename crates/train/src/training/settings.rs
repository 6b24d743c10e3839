//! What a loop is told: of a job what changes memory, of its training what does not. What the loop cannot do is refused here, before
//! anything is loaded.

use tonnage_core::dtype::DType;
use tonnage_core::job::{
    CheckpointPolicy, Framework, JobSpec, LearningRateSchedule, LoraSpec, LossKernel, OptimizerKind, Parallel,
    RowGrowth, Strategy, Task, TaskName, TrainingSpec, TransformersVersion, keys,
};
use tonnage_core::model_type::AGI2;
use tonnage_torch::{Buckets, ScalarType, Tensor, Torch};

use crate::data::batches::Examples;
use crate::error::TrainError;
use crate::optimizer::{Adam, AdamAtan2, AdamAtan2Options, AdamOptions, Implementation, Optimizer, Sgd, SgdOptions};
use crate::schedule::Schedule;

/// What runs what is not carried here, with the memory that `tonnage estimate` says.
const ELSEWHERE: &str = "a script of your own does it: `tonnage run JOB.toml -- python train.py`";

/// All that a loop goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Rows of a pass.
    pub micro_batch_size: u64,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Passes of a step.
    pub accumulation: u64,
    /// What autocast computes in.
    pub autocast: Option<ScalarType>,
    /// Whether the loss is scaled.
    pub scales_loss: bool,
    /// The norm that gradients are clipped to.
    pub clip: Option<f64>,
    /// Whether the model is called with a cache.
    pub caches: bool,
    /// How rows grow to `seq_len`.
    pub growth: Option<RowGrowth>,
    /// Whether labels lie beside the tokens.
    pub own_labels: bool,
    /// Whether early stopping counts epochs of training, as the guide's small GPT does; else evaluations.
    pub waits_for_epochs: bool,
    /// Whether the outputs live until the next pass has its own.
    pub keeps_outputs: bool,
    /// How many processes train.
    pub ranks: u64,
    /// What DistributedDataParallel is told, where it stands round the model.
    pub ddp: Option<Buckets>,
    optimizer: OptimizerKind,
    /// What a training learns by.
    pub training: TrainingSpec,
}

impl Settings {
    /// Of a job and its training.
    ///
    /// # Errors
    /// When the loop cannot do what the job says; with what can.
    pub fn of_job(job: &JobSpec, training: &TrainingSpec) -> Result<Self, TrainError> {
        refuse_job(job)?;
        let recomputes = job.gradient_checkpointing == CheckpointPolicy::EveryLayer;
        Ok(Self {
            micro_batch_size: job.micro_batch_size,
            seq_len: usize::try_from(job.seq_len).unwrap_or(usize::MAX),
            accumulation: job.gradient_accumulation_steps.max(1),
            autocast: job.precision.autocast_dtype().map(scalar_type).transpose()?,
            scales_loss: job.precision.scales_loss(),
            clip: job.clip_grad_norm.map(|clip| clip.max_norm),
            // transformers turns the cache off where layers are recomputed.
            caches: job.use_cache && !recomputes,
            growth: job.row_growth,
            own_labels: job.own_labels,
            waits_for_epochs: job.model.model_type == AGI2,
            keeps_outputs: job.logits.keep_outputs,
            ranks: job.parallel.world_size.max(1),
            ddp: ddp_buckets(job)?,
            optimizer: job.optimizer,
            training: training.clone(),
        })
    }

    /// The optimizer over `parameters`.
    ///
    /// # Errors
    /// Never for settings that [`Settings::of_job`] made.
    pub fn optimizer(&self, torch: &'static Torch, parameters: Vec<Tensor>) -> Result<Box<dyn Optimizer>, TrainError> {
        let adam = |decoupled, implementation| {
            let options = AdamOptions {
                learning_rate: self.training.learning_rate,
                betas: self.training.betas,
                eps: self.training.adam_epsilon,
                weight_decay: self.training.weight_decay,
                decoupled,
                implementation,
            };
            Box::new(Adam::new(torch, parameters.clone(), options)) as Box<dyn Optimizer>
        };
        let sgd = |momentum| {
            let options = SgdOptions {
                learning_rate: self.training.learning_rate,
                momentum,
                weight_decay: self.training.weight_decay,
                ..SgdOptions::default()
            };
            Box::new(Sgd::new(torch, parameters.clone(), options)) as Box<dyn Optimizer>
        };
        Ok(match self.optimizer {
            OptimizerKind::Adamw => adam(true, Implementation::Foreach),
            OptimizerKind::AdamwFused => adam(true, Implementation::Fused),
            OptimizerKind::AdamwForloop => adam(true, Implementation::ForLoop),
            OptimizerKind::Adam => adam(false, Implementation::Foreach),
            OptimizerKind::Sgd => sgd(0.0),
            // torch.optim.SGD(momentum=0.9), which the job's word means.
            OptimizerKind::SgdMomentum => sgd(0.9),
            OptimizerKind::AdamAtan2 => {
                let options = AdamAtan2Options {
                    learning_rate: self.training.learning_rate,
                    betas: self.training.betas,
                    weight_decay: self.training.weight_decay,
                };
                Box::new(AdamAtan2::new(torch, parameters, options))
            }
            other => return Err(no_optimizer(other)),
        })
    }

    /// The learning rate of a step, 0 for the first, of `steps`.
    pub fn learning_rate(&self, step: u64, steps: u64) -> f64 {
        let warmup = self.training.warmup_steps;
        // TrainingArguments.get_warmup_steps: a share is rounded up.
        let warmup = if warmup < 1.0 { (steps as f64 * warmup).ceil() } else { warmup } as u64;
        self.training.learning_rate * schedule_named(self.training.lr_scheduler_type).share(step, warmup, steps)
    }

    /// Rows of a step over all ranks.
    pub fn rows_per_step(&self) -> u64 {
        self.micro_batch_size.saturating_mul(self.accumulation).saturating_mul(self.ranks)
    }

    /// Steps of the whole training.
    pub fn steps(&self, examples: &Examples) -> u64 {
        let by_rows = |rows: u64| self.training.num_train_epochs * rows as f64 / self.rows_per_step().max(1) as f64;
        let epochs = || match examples.growing_batches(self.micro_batch_size) {
            Some(batches) => batches.div_ceil(self.accumulation.max(1)),
            None => by_rows(examples.rows()).ceil() as u64,
        };
        self.training.max_steps.unwrap_or_else(epochs).max(1)
    }
}

const fn schedule_named(word: LearningRateSchedule) -> Schedule {
    match word {
        LearningRateSchedule::Constant => Schedule::Constant,
        LearningRateSchedule::ConstantWithWarmup => Schedule::ConstantWithWarmup,
        LearningRateSchedule::Linear => Schedule::Linear,
        LearningRateSchedule::Cosine => Schedule::Cosine,
        LearningRateSchedule::InverseSqrt => Schedule::InverseSqrt,
    }
}

fn scalar_type(dtype: DType) -> Result<ScalarType, TrainError> {
    match dtype {
        DType::Float16 => Ok(ScalarType::Float16),
        DType::Bfloat16 => Ok(ScalarType::Bfloat16),
        other => Err(TrainError::refused_with(format!("autocast to {other:?} is not known"), ELSEWHERE)),
    }
}

fn no_optimizer(kind: OptimizerKind) -> TrainError {
    let word = serde_json::to_value(kind).unwrap_or_default();
    TrainError::refused_with(
        format!("optimizer = {word} is not carried by `tonnage train`"),
        format!("adamw, adamw_fused, adamw_forloop, adam, adam_atan2, sgd and sgd_momentum are; {ELSEWHERE}"),
    )
}

/// The key of what adapters are trained with elsewhere.
fn estimated_only(lora: &LoraSpec) -> Option<&'static str> {
    let saved = (!lora.modules_to_save.is_empty()).then_some(keys::LORA_MODULES_TO_SAVE);
    lora.use_dora.then_some(keys::LORA_USE_DORA).or(saved)
}

fn refuse_job(job: &JobSpec) -> Result<(), TrainError> {
    let refused = |problem: String, hint: &str| Err(TrainError::refused_with(problem, hint));
    if !matches!(job.task.name(), TaskName::CausalLm | TaskName::Grpo | TaskName::Hrm | TaskName::Swarm) {
        let task = serde_json::to_value(job.task.name()).unwrap_or_default();
        return refused(format!("task = {task}: `tonnage train` trains causal_lm, grpo, swarm and hrm"), ELSEWHERE);
    }
    if job.framework != Framework::Loop {
        let framework = serde_json::to_value(job.framework).unwrap_or_default();
        return refused(
            format!("framework = {framework}: `tonnage train` runs a plain loop of its own"),
            "leave `framework` out, or write \"loop\"; the other runs under `tonnage run JOB.toml -- python train.py`",
        );
    }
    if !job.kernels.is_empty() {
        return refused("kernels of other programs are Triton's, which only Python runs".to_owned(), ELSEWHERE);
    }
    if job.use_reentrant {
        return refused(
            "checkpointing with use_reentrant=True is an autograd.Function of Python's".to_owned(),
            "set use_reentrant = false",
        );
    }
    if job.logits.loss == LossKernel::Liger || job.liger_kernels {
        return refused("Liger's kernels are Triton's, which only Python runs".to_owned(), ELSEWHERE);
    }
    let quantization = job.quantization.map(|_| keys::QUANTIZATION);
    let in_backward = job.optimizer_in_backward.then_some(keys::OPTIMIZER_IN_BACKWARD);
    let average = job.ema.is_on().then_some(keys::EMA);
    if let Some(key) = quantization.or(in_backward).or(average).or_else(|| job.lora.as_ref().and_then(estimated_only)) {
        return refused(format!("`{key}`: it is estimated, not trained here"), ELSEWHERE);
    }
    if job.activation_offload.is_some() {
        let problem = "`activation_offloading`: activations are moved by Python's hooks, not here";
        return refused(problem.to_owned(), ELSEWHERE);
    }
    if job.device_map || job.materialized {
        let problem = "`device_map`: weights are not loaded as from_pretrained(device_map=...) does";
        return refused(problem.to_owned(), "leave it out: what it adds to memory is one block");
    }
    if job.transformers != TransformersVersion::DEFAULT {
        return refused(
            format!(
                "`transformers` = {}: models are trained as those of {}",
                job.transformers,
                TransformersVersion::DEFAULT
            ),
            "leave it out, or train with that version under `tonnage run JOB.toml -- python train.py`",
        );
    }
    if !job.zero_grad_set_to_none {
        return refused("`zero_grad_set_to_none` = false is not carried".to_owned(), ELSEWHERE);
    }
    if !job.train_mode {
        return refused("`train_mode` = false trains without dropout".to_owned(), "set `dropout = 0.0` for that");
    }
    if job.seq_len < 2 {
        return refused("a row of one token has nothing to predict".to_owned(), "set seq_len to 2 or more");
    }
    no_optimizer_of(job)
}

/// What DistributedDataParallel is told; the other ways to spread a job over ranks are Python's.
fn ddp_buckets(job: &JobSpec) -> Result<Option<Buckets>, TrainError> {
    let Parallel { world_size, strategy, .. } = job.parallel;
    let elsewhere = format!(
        "a script of your own does it: `tonnage run JOB.toml -- torchrun --nproc-per-node {world_size} train.py`"
    );
    let looking = "`tonnage train` leaves no parameter out of a loss, so DDP need not look for any: leave it out";
    match strategy {
        Strategy::None if world_size <= 1 => Ok(None),
        // HRM's loop sums its gradients itself.
        Strategy::AllReduce if job.task == Task::Hrm => Ok(None),
        Strategy::Ddp(ddp) if ddp.find_unused_parameters => {
            Err(TrainError::refused_with(format!("`{}` is not carried", keys::DDP_FIND_UNUSED_PARAMETERS), looking))
        }
        Strategy::Ddp(ddp) if ddp.static_graph => {
            Err(TrainError::refused_with(format!("`{}` is not carried", keys::DDP_STATIC_GRAPH), elsewhere))
        }
        Strategy::Ddp(ddp) => {
            Ok(Some(Buckets { cap_mb: ddp.bucket_cap_mb, hold_gradients: ddp.gradient_as_bucket_view }))
        }
        Strategy::DataParallel => Err(TrainError::refused_with(
            "parallel = \"data_parallel\": one process that copies the model to every GPU in each pass and gathers all logits on the \
             first is not carried"
                .to_owned(),
            "parallel = \"ddp\" trains the same rows with a process a GPU, each with its own logits: --ranks N; PyTorch's own \
             DataParallel runs under `tonnage run JOB.toml -- python train.py`",
        )),
        _ => Err(TrainError::refused_with(
            "over several ranks `tonnage train` runs DistributedDataParallel (parallel = \"ddp\") and nothing else"
                .to_owned(),
            elsewhere,
        )),
    }
}

fn no_optimizer_of(job: &JobSpec) -> Result<(), TrainError> {
    use OptimizerKind::{Adam, AdamAtan2, Adamw, AdamwForloop, AdamwFused, Sgd, SgdMomentum};
    match job.optimizer {
        Adamw | AdamwFused | AdamwForloop | Adam | AdamAtan2 | Sgd | SgdMomentum => Ok(()),
        other => Err(no_optimizer(other)),
    }
}

#[cfg(test)]
mod tests {
    use tonnage_core::job::{JobSource, Resolved};

    use super::*;
    use crate::data::windows::Windows;

    fn resolved(set: &[(&str, &str)]) -> Resolved {
        // Liger has kernels for some models only.
        let model = if set.iter().any(|(_, value)| *value == "liger") { "Qwen/Qwen2.5-0.5B" } else { "gpt2" };
        let source = JobSource::model(model).set("framework", "loop");
        set.iter().fold(source, |source, (key, value)| source.set(key, value)).resolve(&[]).unwrap()
    }

    fn examples(rows: usize) -> Examples {
        Examples::Text(Windows::new(vec![0; rows * 3 + 1], 3, 1, 1, 0).unwrap())
    }

    fn settings(set: &[(&str, &str)]) -> Result<Settings, TrainError> {
        let resolved = resolved(set);
        Settings::of_job(&resolved.job, &resolved.training)
    }

    #[test]
    fn a_plain_loop_is_taken_as_it_is() {
        let found = settings(&[
            ("micro_batch_size", "4"),
            ("gradient_accumulation_steps", "2"),
            ("precision", "amp-fp16"),
            ("warmup_ratio", "0.1"),
            ("learning_rate", "1e-3"),
            ("num_train_epochs", "2"),
        ])
        .unwrap();
        assert_eq!((found.rows_per_step(), found.steps(&examples(100)), found.scales_loss), (8, 25, true));
        assert_eq!(found.autocast, Some(ScalarType::Float16));
        assert_eq!((found.learning_rate(0, 100), found.learning_rate(10, 100)), (0.0, 1e-3));
        assert_eq!(settings(&[("max_steps", "7")]).unwrap().steps(&examples(100)), 7);
    }

    #[test]
    fn what_it_cannot_do_is_refused_with_what_can() {
        for (key, value, wanted) in [
            ("optimizer", "lion", "adamw_fused"),
            ("task", "inference_forward", "tonnage run"),
            ("framework", "trl", "leave `framework` out"),
            ("parallel", "fsdp2", "torchrun"),
            ("parallel", "zero1", "torchrun --nproc-per-node 2"),
            ("parallel", "data_parallel", "--ranks N"),
            ("ddp.static_graph", "true", "torchrun"),
            ("ddp.find_unused_parameters", "true", "leave it out"),
            ("zero_grad_set_to_none", "false", "tonnage run"),
            ("optimizer_in_backward", "true", "tonnage run"),
            ("ema", "averaged_model", "tonnage run"),
            ("optimizer", "adamw_torch_4bit", "adamw_fused"),
            ("train_mode", "false", "dropout"),
            ("seq_len", "1", "2 or more"),
            ("loss", "liger", "tonnage run"),
            ("transformers", "4.48", "tonnage run"),
            ("device_map", "true", "leave it out"),
            ("optimizer", "adamw8bit", "adamw_fused"),
            ("optimizer", "muon", "adamw_fused"),
        ] {
            let spreads = key == "parallel" || key.starts_with("ddp");
            let error = settings(&[(key, value), ("world_size", if spreads { "2" } else { "1" })]).unwrap_err();
            assert!(error.to_string().contains(wanted), "{key}: {error}");
        }
        let error = settings(&[("quantization", "nf4"), ("lora.r", "4")]).unwrap_err().to_string();
        assert!(error.contains("`quantization`") && error.contains("tonnage run"), "{error}");
    }
}
