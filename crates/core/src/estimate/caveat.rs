//! What an estimate does not know, said with the estimate.

use super::engine::loaded;
use crate::family::generic_allowance;
use crate::gpu::Gpu;
use crate::job::{
    Attention, CheckpointPolicy, JobSpec, JudgeWeights, LossKernel, Precision, Rollout, Strategy, TransformersVersion,
};
use crate::step::{Repetition, TrainingLoop, training_loop};
use crate::trace::{Allocation, Trace};
use crate::units::Bytes;

/// What is smaller than this part of the peak did not make the figure what it is.
const WORTH_SAYING: u64 = 10;
/// The op of the math fallback that makes the scores.
const SAFE_SOFTMAX: &str = "_safe_softmax.default";

/// Something the reader must know about a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    /// A name for programs (`context_not_measured`).
    pub code: &'static str,
    /// What it is, for people.
    pub text: String,
    /// By how many bytes it widens the range, 0 if it does not.
    pub widens_bytes: u64,
    /// Whether the total may only be more, not less.
    pub upward: bool,
    /// Whether no allowance covers it, so that no GPU surely has enough.
    pub open: bool,
    /// Whether it made the figure what it is, and belongs beside the verdict.
    pub leads: bool,
}

impl Caveat {
    /// A remark that does not widen the range.
    pub fn remark(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), widens_bytes: 0, upward: true, open: false, leads: false }
    }

    /// Something that may make the total more or less by `bytes`.
    pub fn widening(code: &'static str, text: impl Into<String>, bytes: u64) -> Self {
        Self { code, text: text.into(), widens_bytes: bytes, upward: false, open: false, leads: false }
    }

    /// Something that may make the total more by `bytes`.
    pub fn adding(code: &'static str, text: impl Into<String>, bytes: u64) -> Self {
        Self { code, text: text.into(), widens_bytes: bytes, upward: true, open: false, leads: false }
    }

    /// The same where what it names may be more than it allows for: the job then surely fits nowhere.
    #[must_use]
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// The caveats of a job whose peak is `reserved` bytes and whose model, unsplit and without adapters, has `parameters`.
pub(super) fn caveats(
    job: &JobSpec,
    trace: &Trace,
    reserved: u64,
    parameters: u64,
    repetition: Option<Repetition>,
) -> Vec<Caveat> {
    let of_model = [
        math_attention(job, trace, reserved),
        loss_scaling(job),
        context(&job.gpu),
        cudnn(job, reserved),
        prefers_cudnn(job),
        count(job, parameters),
        generic(job, reserved, parameters),
        judge(job, trace),
        towers(job, reserved),
        device(&job.gpu, reserved),
        garbage_collection(job),
        liger(job),
        plain_loop(job, reserved),
        loop_of_shards(job, reserved),
    ];
    let of_setup = [
        flash_attn_package(job, reserved),
        nccl(job),
        split(job, reserved),
        transformers(job, reserved),
        silicon(job, reserved),
        quantized_judge(job, trace),
        engine(job),
        replayed_tokens(trace, reserved),
        repetition.and_then(|run| repeats(job, run)),
    ];
    let of_model = of_model.into_iter().flatten();
    of_model.chain(of_task(job)).chain(of_setup.into_iter().flatten()).collect()
}

/// Where no fused kernel takes the calls, every layer keeps its scores: what turns a small job into a huge one.
fn math_attention(job: &JobSpec, trace: &Trace, reserved: u64) -> Option<Caveat> {
    let is_scores = |allocation: &&Allocation| trace.origins[usize::from(allocation.origin)].op == SAFE_SOFTMAX;
    let first = trace.allocations.iter().find(is_scores)?;
    let of_first_pass = trace.allocations.iter().filter(is_scores).filter(|scores| scores.phase == first.phase);
    let all: u64 = of_first_pass.map(|scores| scores.bytes).sum();
    if job.attention != Attention::Sdpa || all < reserved / WORTH_SAYING {
        return None;
    }
    let largest = first.bytes;
    let half = job.precision.autocast_dtype().unwrap_or(job.precision.weight_dtype()).is_half();
    let (major, minor) = job.gpu.compute_capability;
    let (why, way_out) = match (half, major) {
        (false, 8..) => {
            ("no fused kernel takes these calls in fp32", "; in bf16 (--precision bf16, amp-bf16) flash does")
        }
        (false, _) => ("no fused kernel takes these calls in fp32", ""),
        (true, _) => ("no fused kernel takes these calls", ""),
    };
    let scores = Bytes(largest);
    let text = format!(
        "attention falls back to PyTorch's math: {why} on sm_{major}{minor}, and a layer's scores are {scores}{way_out}"
    );
    Some(Caveat { leads: true, ..Caveat::remark("math_attention", text) })
}

/// Pure fp16 needs what only fp32 gradients give.
fn loss_scaling(job: &JobSpec) -> Option<Caveat> {
    let text = match job.precision {
        Precision::Fp16 if job.task.trains() => {
            "fp16 gradients underflow without loss scaling, and GradScaler refuses fp16 gradients: bf16, or amp-fp16 with fp32 \
             weights, trains"
        }
        Precision::AmpFp16 => {
            "loss scaling is simulated with steps that all happen: GradScaler leaves out a step whose gradients overflow, as \
             the first ones do"
        }
        _ => return None,
    };
    Some(Caveat::remark("loss_scaling", text))
}

fn context(gpu: &Gpu) -> Option<Caveat> {
    gpu.context_bytes.is_none().then(|| {
        let text = "nobody measured the CUDA context of this GPU; it is taken to grow with the multiprocessors";
        Caveat::remark("context_not_measured", text)
    })
}

/// A tenth of the peak: an allowance, not a measurement.
fn cudnn(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    (job.attention == Attention::Cudnn).then(|| {
        let text = "the workspace of cuDNN attention is not known; the range allows a tenth of the peak for it";
        Caveat::widening("cudnn_workspace", text, reserved / 10)
    })
}

/// `check_prefer_cudnn_attention` (sdp_utils.cpp, PyTorch 2.11 for CUDA 13): these devices ask cuDNN first.
fn prefers_cudnn(job: &JobSpec) -> Option<Caveat> {
    let half = job.precision.autocast_dtype().unwrap_or(job.precision.weight_dtype()).is_half();
    let asks_cudnn = matches!(job.gpu.compute_capability.0, 9 | 10);
    (job.attention == Attention::Sdpa && half && asks_cudnn).then(|| {
        let text = "PyTorch asks cuDNN attention first on this GPU; the figures are with TORCH_CUDNN_SDPA_DEPRIORITIZED=1, \
                    which leaves it to flash";
        Caveat::remark("cudnn_preferred", text)
    })
}

/// Weight, gradient and two moments, in fp32: the most that a parameter costs between steps.
const TRAINED_BYTES: u64 = 16;
/// The weight alone, in fp32.
const FROZEN_BYTES: u64 = 4;

/// How many ranks share the model's parameters.
fn sharers(job: &JobSpec) -> u64 {
    match job.parallel.strategy {
        Strategy::TensorParallel { size } => size.max(1),
        Strategy::PipelineParallel { stages, .. } => stages.max(1),
        _ => 1,
    }
}

/// Whether the model has as many parameters as somebody else counted. What a multimodal model has beyond them is left out,
/// not wrong: [`towers`] speaks of it.
fn count(job: &JobSpec, parameters: u64) -> Option<Caveat> {
    let counted = job.model.beside.counted.as_ref()?;
    let is_left_out = job.model.beside.left_out.is_some() && counted.parameters > parameters;
    (counted.parameters != parameters && !is_left_out).then(|| {
        let text = format!("the model was built with {parameters} parameters, {} {}", counted.who, counted.parameters);
        let share = counted.parameters.abs_diff(parameters).div_ceil(sharers(job));
        Caveat::widening("parameter_count", text, share.saturating_mul(TRAINED_BYTES))
    })
}

/// The allowance is measured; it only holds for a model whose parameters are the right ones.
fn generic(job: &JobSpec, reserved: u64, parameters: u64) -> Option<Caveat> {
    let allowance = generic_allowance(&job.model.model_type)?;
    let model_type = &job.model.model_type;
    let checked = job.model.beside.counted.as_ref().is_some_and(|counted| counted.parameters == parameters);
    let text = format!(
        "no family mirrors `{model_type}`: a generic decoder of its shape stands in, which was within {:.1} % of what such \
         models were measured to reserve; the range allows {} %",
        allowance.worst_percent, allowance.percent
    );
    let text = match allowance.ignores_attention {
        true => format!("{text}; its class computes scores in memory itself, whatever `attention` says"),
        false => text,
    };
    let bytes = reserved / 100 * allowance.percent;
    if checked {
        return Some(Caveat::widening("generic_decoder", text, bytes));
    }
    let text = format!(
        "{text}; nothing confirms its {parameters} parameters, so it is not said to fit: put the config into the folder of its \
         safetensors files, whose headers are counted"
    );
    Some(Caveat::widening("generic_decoder", text, bytes).open())
}

/// A judge of a type that no family mirrors, or without its towers.
fn judge(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let model = &job.task.facts().judge()?.model;
    let is_partial = generic_allowance(&model.model_type).is_some() || model.beside.left_out.is_some();
    is_partial.then(|| {
        let text = format!(
            "the judge is a `{}`, which no family mirrors whole: the range allows a fifth of its weights, and it is not said \
             to fit",
            model.model_type
        );
        Caveat::widening("judge_generic", text, loaded(trace, "judge") / 5).open()
    })
}

/// The towers of a multimodal model: what is known of them is added, and what is not keeps the job from fitting surely.
fn towers(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let left_out = job.model.beside.left_out.as_ref()?;
    let each = if job.task.trains() && job.lora.is_none() { TRAINED_BYTES } else { FROZEN_BYTES };
    let (what, parameters) = match left_out.parameters {
        Some(parameters) => (format!("towers of at least {:.0} M parameters", parameters as f64 / 1e6), parameters),
        None => ("its other towers".to_owned(), 0),
    };
    let text = format!(
        "`{}` is multimodal: only its text model is estimated; {what}, its projector, and the activations of images or \
         sound are left out, so it is not said to fit: `tonnage rehearse` runs the whole of it; the range allows for the towers' \
         states and a tenth of the peak",
        left_out.model_type
    );
    // The projector is in no tower's config.
    let bytes = parameters.saturating_mul(each).saturating_add(reserved / 10);
    Some(Caveat::adding("towers_left_out", text, bytes).open())
}

/// Scratch space inside operators was measured on compute capability 8.0 and 9.0 only.
fn device(gpu: &Gpu, reserved: u64) -> Option<Caveat> {
    let (major, minor) = gpu.compute_capability;
    (!matches!((major, minor), (8, 0) | (9, 0))).then(|| {
        let text = format!("scratch space of kernels was measured on sm_80 and sm_90, not on sm_{major}{minor}");
        Caveat::widening("device_not_measured", text, reserved / 100)
    })
}

fn garbage_collection(job: &JobSpec) -> Option<Caveat> {
    (job.allocator.garbage_collection_threshold > 0.0).then(|| {
        let text = "reserved bytes are those without garbage collection, which acts only under a memory fraction";
        Caveat::remark("garbage_collection", text)
    })
}

/// Liger's patches bring other kernels along by default.
fn liger(job: &JobSpec) -> Option<Caveat> {
    (job.logits.loss == LossKernel::Liger && !job.liger_kernels).then(|| {
        let text = "of Liger only the fused loss is simulated (liger_kernel_config with all else false); use_liger_kernel = true \
                    brings its norms, rotary embeddings and MLPs too";
        Caveat::remark("liger_loss_only", text)
    })
}

/// What the Trainer's loop may hold beyond a plain one: under autocast an fp32 copy of all logits, batches of a step that
/// come to the GPU together, and a twentieth for the rest.
fn plain_loop(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let TrainingLoop::PlainFor(reason) = training_loop(job) else { return None };
    let vocabulary = job.model.config.get("vocab_size").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let tokens = job.micro_batch_size.saturating_mul(job.seq_len);
    let copies = job.precision.autocast_dtype().map_or(0, |_| tokens.saturating_mul(vocabulary).saturating_mul(4));
    let inputs = tokens.saturating_mul(job.gradient_accumulation_steps).saturating_mul(3 * 8);
    let bytes = (reserved / 20).saturating_add(copies).saturating_add(inputs);
    let text = format!(
        "{reason}: trained in a plain loop with the settings of framework = \"{}\"; the range allows for what that trainer's \
         own loop may hold beyond it",
        job.framework.name()
    );
    Some(Caveat::adding("plain_loop", text, bytes))
}

/// A twentieth of the peak: an allowance, not a measurement.
fn loop_of_shards(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let is_sharded =
        matches!(job.parallel.strategy, Strategy::Fsdp2(_) | Strategy::Zero1 { .. } | Strategy::TensorParallel { .. });
    (is_sharded && training_loop(job) == TrainingLoop::Own).then(|| {
        let text = "the Trainer's loop was measured on one GPU and with DDP; how accelerate prepares a model that is sharded was \
                    not, and the range allows a twentieth of the peak";
        Caveat::widening("trainer_loop_of_shards", text, reserved / 20)
    })
}

/// An allowance, not a measurement: users report about this much a rank with four ranks.
const NCCL_ALLOWANCE: u64 = 1 << 30;

fn nccl(job: &JobSpec) -> Option<Caveat> {
    (job.parallel.world_size > 1).then(|| {
        let text = "NCCL's communicators and channels lie outside PyTorch's allocator and were not measured; the range allows \
                    1 GiB a rank";
        Caveat::adding("nccl_not_measured", text, NCCL_ALLOWANCE)
    })
}

/// A fifth of the peak: an allowance, not a measurement.
fn split(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let (code, text) = match job.parallel.strategy {
        Strategy::TensorParallel { .. } => (
            "tensor_parallel_assumed",
            "the rank's share is a model with its part of heads, inner width and vocabulary; how the parts communicate was \
             not measured, the range allows a fifth of the peak",
        ),
        Strategy::PipelineParallel { .. } => (
            "pipeline_parallel_assumed",
            "the stage is a model with its layers, whose open micro-batches keep their activations; buffers between stages \
             were not measured, the range allows a fifth of the peak",
        ),
        Strategy::DeepSpeed { stage: 3 } => (
            "deepspeed_assumed",
            "stage 3 is simulated as FSDP2 over fp32 shards; its own buckets and bf16 shards were not measured, the range \
             allows a fifth of the peak",
        ),
        Strategy::DeepSpeed { .. } => (
            "deepspeed_assumed",
            "DeepSpeed's partitions and default buckets are simulated from its source and were not measured; the range allows \
             a fifth of the peak",
        ),
        _ => return None,
    };
    Some(Caveat::widening(code, text, reserved / 5))
}

/// Of the published totals of such runs that lie below their card (docs/published.md, `device-total`), the highest is this many
/// percent of our reserved bytes above ours.
const SILICON_ALLOWANCE_PERCENT: u64 = 9;

/// What real allocators held in training with transformers 4, beyond what is simulated of it.
fn silicon(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    (job.task.trains() && job.model.is_in_transformers() && job.transformers.is_before_5()).then(|| {
        let text = format!(
            "published totals of training with transformers 4 on A100s reach {SILICON_ALLOWANCE_PERCENT} % above what is \
             calculated (docs/published.md), most within 5 %: other kernels leave other holes; the range allows for it"
        );
        Caveat::adding("reserved_on_silicon", text, reserved / 100 * SILICON_ALLOWANCE_PERCENT)
    })
}

/// `kLargeBuffer` (CUDACachingAllocator.cpp): what the allocator takes at once for blocks below 10 MiB. Where reserved bytes of
/// the measured versions differ, they differ by less.
const SEGMENT_ALLOWANCE: u64 = 20 << 20;

/// A tenth or a fiftieth of the peak: allowances, where the versions measured around it differ by less from what is
/// simulated of them.
fn transformers(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let version = job.transformers;
    if version == TransformersVersion::DEFAULT || !job.model.is_in_transformers() {
        return None;
    }
    if job.task.facts().completion_len().is_some() {
        let text = format!(
            "the trainer was measured with transformers {}; with {version} its logits, losses, masks and attention are \
             simulated as that version's, and the range allows a tenth of the peak",
            TransformersVersion::DEFAULT
        );
        return Some(Caveat::widening("transformers_of_trainer", text, reserved / 10));
    }
    if !version.is_newer() && !version.knows_layers_of(job.model.facts()) {
        let text = format!(
            "of transformers {version} the layers of `{}` were not read and are taken from {}; the range allows a tenth of the \
             peak",
            job.model.model_type,
            TransformersVersion::DEFAULT
        );
        return Some(Caveat::widening("transformers_layers_not_read", text, reserved / 10));
    }
    if version.is_measured() {
        let text = format!(
            "what differs in transformers {version} was measured on small cases; the range allows a segment more"
        );
        return (version < TransformersVersion::DEFAULT)
            .then(|| Caveat::widening("transformers_older", text, SEGMENT_ALLOWANCE));
    }
    Some({
        let how = if version.is_newer() { "simulated as the newest that was" } else { "simulated from its source" };
        let text = format!(
            "transformers {version} was not measured: it is {how}, and the range allows a fiftieth of the peak"
        );
        Caveat::widening("transformers_not_measured", text, reserved / 50)
    })
}

/// What the task's own program does otherwise.
fn of_task(job: &JobSpec) -> impl Iterator<Item = Caveat> {
    job.task.facts().remarks(&job.gpu).into_iter().map(|(code, text)| Caveat::remark(code, text))
}

/// Copies of an attention's output that a padded batch makes beside those of its layers: queries, keys and values without
/// padding while the kernel runs.
const COPIES_WHILE_IT_RUNS: u64 = 3;

/// Rows that are padded are copied for `flash_attn_varlen_func`, and each layer keeps its output twice, without padding and
/// with it (transformers 5.17, modeling_flash_attention_utils.py).
fn flash_attn_package(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    if job.attention != Attention::FlashAttention2 {
        return None;
    }
    let from_source = "what flash-attn's kernels allocate comes from its source (2.8), not from a measurement on a GPU";
    if job.micro_batch_size == 1 {
        return Some(Caveat::remark("flash_attn_from_source", from_source));
    }
    let size = |key: &str| job.model.config.get(key).and_then(serde_json::Value::as_u64);
    let copies = size("hidden_size").zip(size("num_hidden_layers")).map_or(reserved / 20, |(width, layers)| {
        let kept =
            if job.gradient_checkpointing == CheckpointPolicy::EveryLayer || !job.task.trains() { 1 } else { layers };
        let tokens = job.micro_batch_size.saturating_mul(job.seq_len);
        tokens.saturating_mul(width).saturating_mul(2).saturating_mul(kept.saturating_add(COPIES_WHILE_IT_RUNS))
    });
    let text = format!(
        "{from_source}; rows are taken to be of one length: padded ones are copied for flash_attn_varlen_func, and the range \
         allows for that"
    );
    Some(Caveat::adding("flash_attn_from_source", text, copies))
}

/// A twentieth of the judge's weights: an allowance, not a measurement.
fn quantized_judge(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let weights = job.task.facts().judge()?.weights;
    matches!(weights, JudgeWeights::Int8 | JudgeWeights::Nf4).then(|| {
        let text = "the judge's linear layers are simulated from bitsandbytes' source (0.50) and were not measured: head and \
                    embeddings in bf16, int8 without outlier columns, nf4 unpacked whole for more than 4 rows; the range allows \
                    a twentieth of its weights";
        Caveat::widening("judge_quantized", text, loaded(trace, "judge") / 20)
    })
}

/// An allowance, not a measurement: CUDA graphs are captured beyond the share, and stay when the engine sleeps.
const ENGINE_ALLOWANCE: u64 = 1 << 30;

fn engine(job: &JobSpec) -> Option<Caveat> {
    let Rollout::Vllm { sleep_mode, .. } = job.task.grpo()?.rollout else { return None };
    let asleep = if sleep_mode { ", and to hold nothing of it asleep" } else { "" };
    let text = format!(
        "what the trainer reserves is calculated; the vLLM engine is assumed to fill its share of the GPU from its start \
         on{asleep}, and was not measured: the range allows 1 GiB more, for CUDA graphs and NCCL"
    );
    Some(Caveat::adding("vllm_assumed", text, ENGINE_ALLOWANCE))
}

fn repeats(job: &JobSpec, run: Repetition) -> Option<Caveat> {
    let whole = run.steps == job.steps && run.passes == job.gradient_accumulation_steps;
    (!whole).then(|| {
        let text = format!(
            "{} of {} steps and {} of {} passes were simulated: the others ask for the same again, if perhaps elsewhere",
            run.steps, job.steps, run.passes, job.gradient_accumulation_steps
        );
        Caveat::remark("repetition_left_out", text)
    })
}

/// Jobs that were replayed both ways were off by up to 2.9 % of the peak (`step/tokens.rs`, tests), most by nothing.
const STRIDE_ALLOWANCE_PERCENT: u64 = 4;

/// Of very long generations a replay leaves tokens out.
fn replayed_tokens(trace: &Trace, reserved: u64) -> Option<Caveat> {
    let stride = trace.replayed_stride();
    (stride > 1).then(|| {
        let text = format!(
            "of the tokens between the first and the last that are generated, one of {stride} was replayed: what the growing \
             cache leaves free may lie elsewhere, and the range allows {STRIDE_ALLOWANCE_PERCENT} % of the peak"
        );
        Caveat::widening("tokens_left_out", text, reserved / 100 * STRIDE_ALLOWANCE_PERCENT)
    })
}
