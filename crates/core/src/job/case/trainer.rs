//! Cases of Hugging Face's Trainer and TRL's SFTTrainer, as `testdata/steps/measure_trainer.py` runs them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::images::CaseImages;
use super::rl::OptimizerName;
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, plain_job, told_of_case};
use crate::host::HostKind;
use crate::job::{
    ActivationOffload, Attention, BackwardPrefetch, ComputeDtype, Ddp, FlatInit, Framework, Fsdp1, JobError, JobSpec,
    Kernels, LogitsPath, LossKernel, OffloadHooks, OptimizerKind, Parallel, Precision, QuantizationSpec,
    QuantizedWeights, Seq2SeqSpec, Strategy, Task, TaskName, TensorPlan,
};
use crate::model_type::QWEN2;

/// A case of kind `trainer`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TrainerCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    framework: Framework,
    model: Map<String, Value>,
    task: TaskName,
    precision: CasePrecision,
    micro_batch: u64,
    seq_len: u64,
    target_len: u64,
    freeze_encoder: bool,
    steps: u32,
    grad_accum: u64,
    gradient_checkpointing: bool,
    use_reentrant: bool,
    optimizer: Option<OptimizerName>,
    optim_args: String,
    weight_decay: f64,
    optim_target_modules: Vec<String>,
    lora: Option<CaseLora>,
    clip_grad_norm: Option<f64>,
    attn: Attention,
    use_liger_kernel: bool,
    kernels: Vec<String>,
    loss: LossKernel,
    keep_outputs: bool,
    use_cache: bool,
    world: u64,
    /// Whether the ranks share layers, by transformers' `tp_plan`.
    tp: bool,
    padded: bool,
    padding_free: bool,
    activation_offloading: Option<CaseOffload>,
    quantization: Option<CaseQuantization>,
    fsdp1: Option<CaseFsdp1>,
    images_per_row: u64,
    image_size: Option<Value>,
    freeze_vision_tower: bool,
    freeze_multi_modal_projector: bool,
    #[serde(rename = "note")]
    _note: String,
}

/// `BitsAndBytesConfig` of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseQuantization {
    weights: QuantizedWeights,
    #[serde(default)]
    double: bool,
    #[serde(default)]
    compute: CaseDtype,
    #[serde(default = "yes")]
    prepared: bool,
    #[serde(default)]
    experts: bool,
    /// As checkpoints of GPTQ say it: -1 where there are no groups.
    group_size: Option<i64>,
    /// Of a weight of GPTQ's.
    #[serde(default = "four")]
    bits: u64,
    #[serde(default)]
    recast: bool,
}

/// `activation_offloading` of a config of TRL's.
pub(super) fn offload_of_trl(is_on: bool) -> Option<ActivationOffload> {
    is_on.then_some(ActivationOffload { hooks: OffloadHooks::Streams, held: HostKind::Pinned })
}

/// Hooks that move activations, and how the host holds them.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseOffload {
    hooks: OffloadHooks,
    pin_memory: bool,
}

impl CaseOffload {
    pub(super) fn spec(self) -> ActivationOffload {
        ActivationOffload { hooks: self.hooks, held: HostKind::pinned(self.pin_memory) }
    }
}

/// The Trainer's `fsdp_config` of version 1, with its defaults.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CaseFsdp1 {
    backward_prefetch: CasePrefetch,
    use_orig_params: bool,
    sync_module_states: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CasePrefetch {
    BackwardPre,
    BackwardPost,
    NoPrefetch,
}

impl Default for CaseFsdp1 {
    fn default() -> Self {
        Self { backward_prefetch: CasePrefetch::NoPrefetch, use_orig_params: true, sync_module_states: true }
    }
}

impl CaseFsdp1 {
    /// As accelerate calls it under this precision; weights that are packed are on the device before.
    pub(super) fn strategy(&self, precision: Precision, is_quantized: bool) -> Strategy {
        let mixed = precision.autocast_dtype();
        Strategy::Fsdp1(Fsdp1 {
            param_dtype: mixed,
            reduce_dtype: mixed,
            buffer_dtype: mixed,
            reshard_after_forward: true,
            replicate_size: 1,
            use_orig_params: self.use_orig_params,
            backward_prefetch: match self.backward_prefetch {
                CasePrefetch::BackwardPre => BackwardPrefetch::Pre,
                CasePrefetch::BackwardPost => BackwardPrefetch::Post,
                CasePrefetch::NoPrefetch => BackwardPrefetch::None,
            },
            shard_root_only: false,
            sync_module_states: self.sync_module_states,
            init: if is_quantized { FlatInit::Device } else { FlatInit::Host },
            cpu_offload: false,
        })
    }
}

/// A dtype as torch calls it.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CaseDtype {
    #[default]
    Float32,
    Bfloat16,
    Float16,
}

const fn four() -> u64 {
    4
}

const fn yes() -> bool {
    true
}

impl CaseQuantization {
    pub(super) fn spec(&self, framework: Framework) -> QuantizationSpec {
        let compute = match self.compute {
            CaseDtype::Float32 => ComputeDtype::Fp32,
            CaseDtype::Bfloat16 => ComputeDtype::Bf16,
            CaseDtype::Float16 => ComputeDtype::Fp16,
        };
        let prepared = self.prepared && !self.experts && framework != Framework::Trl;
        let group_size = self.group_size.map_or(128, |size| u64::try_from(size).unwrap_or(0));
        let &Self { weights, double, experts, recast, bits, .. } = self;
        QuantizationSpec { weights, double, compute, prepared, experts, recast, group_size, bits }
    }
}

impl Default for TrainerCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            framework: Framework::Trainer,
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            task: TaskName::CausalLm,
            precision: CasePrecision::Fp32,
            micro_batch: 4,
            seq_len: 128,
            target_len: 128,
            freeze_encoder: false,
            steps: 3,
            grad_accum: 1,
            gradient_checkpointing: false,
            use_reentrant: false,
            optimizer: None,
            optim_args: String::new(),
            weight_decay: 0.0,
            optim_target_modules: Vec::new(),
            lora: None,
            clip_grad_norm: Some(1.0),
            attn: Attention::Sdpa,
            use_liger_kernel: false,
            kernels: Vec::new(),
            loss: LossKernel::Full,
            keep_outputs: false,
            use_cache: false,
            world: 1,
            tp: false,
            padded: false,
            padding_free: false,
            activation_offloading: None,
            quantization: None,
            fsdp1: None,
            images_per_row: 1,
            image_size: None,
            freeze_vision_tower: false,
            freeze_multi_modal_projector: false,
            _note: String::new(),
        }
    }
}

/// Ranks as a trainer wraps them: a model that is not peft's and recomputes has no unused parameters looked for.
pub(super) fn ranks_of_trainer(world_size: u64, is_peft: bool, recomputes: bool) -> Parallel {
    let ddp = Ddp { find_unused_parameters: is_peft || !recomputes, ..Ddp::default() };
    let strategy = if world_size > 1 { Strategy::Ddp(ddp) } else { Strategy::None };
    Parallel { world_size, rank: 0, strategy }
}

const fn layers_over(size: u64) -> Strategy {
    Strategy::TensorParallel { size, plan: TensorPlan::Transformers }
}

pub(super) fn job_of_case(case: TrainerCase) -> Result<JobSpec, JobError> {
    let images = CaseImages {
        per_row: case.images_per_row,
        size: case.image_size.as_ref(),
        freezes: [case.freeze_vision_tower, case.freeze_multi_modal_projector],
    };
    let optimizer = case.optimizer.map_or(OptimizerKind::AdamwFused, OptimizerName::kind).in_trainer();
    let (places_first, model) = images.see(&case.id, case.model)?;
    let task = match case.task {
        TaskName::MaskedLm => Task::MaskedLm,
        TaskName::Seq2SeqLm => {
            Task::Seq2SeqLm(Seq2SeqSpec { target_len: case.target_len, freeze_encoder: case.freeze_encoder })
        }
        TaskName::SequenceClassification => Task::SequenceClassification,
        TaskName::TokenClassification => Task::TokenClassification,
        TaskName::ImageClassification => Task::ImageClassification,
        TaskName::Contrastive => Task::Contrastive,
        _ => Task::CausalLm,
    };
    let brings_loss = case.use_liger_kernel && case.framework == Framework::Trainer && model.facts().liger.fuses_loss();
    let loss = if brings_loss { LossKernel::Liger } else { case.loss };
    // SFTTrainer always looks for them where rows have images.
    let looks = case.lora.is_some() || (model.beside.vision.is_some() && case.framework == Framework::Trl);
    let ranks = ranks_of_trainer(case.world, looks, case.gradient_checkpointing);
    let precision = case.precision.precision();
    let parallel = match &case.fsdp1 {
        Some(fsdp1) => Parallel { strategy: fsdp1.strategy(precision, case.quantization.is_some()), ..ranks },
        None if case.tp => Parallel { strategy: layers_over(case.world), ..ranks },
        None => ranks,
    };
    Ok(JobSpec {
        places_first,
        framework: case.framework,
        micro_batch_size: case.micro_batch,
        seq_len: case.seq_len,
        gradient_accumulation_steps: case.grad_accum,
        precision,
        attention: case.attn,
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        use_reentrant: case.use_reentrant,
        optimizer,
        decays: case.weight_decay > 0.0,
        optimizer_in_backward: case.optimizer.is_some_and(OptimizerName::steps_in_backward),
        low_rank: told_of_case(optimizer, &case.optim_args, case.optim_target_modules)?.0,
        clip_grad_norm: clip_spec(case.clip_grad_norm),
        lora: case.lora.map(Into::into),
        liger_kernels: case.use_liger_kernel,
        kernels: Kernels::of_names(case.kernels.iter().map(String::as_str))?,
        logits: LogitsPath { keep_outputs: case.keep_outputs, logits_to_keep: None, loss },
        use_cache: case.use_cache,
        device_map: case.quantization.is_some(),
        quantization: case.quantization.map(|quantization| quantization.spec(case.framework)),
        padded: Some(case.padded),
        padding_free: case.padding_free,
        activation_offload: case.activation_offloading.map(CaseOffload::spec),
        steps: case.steps,
        parallel,
        ..plain_job(model, task)
    })
}
