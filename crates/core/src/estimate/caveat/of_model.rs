//! What is not known of a model and of the loop that runs it.

use super::Caveat;
use crate::estimate::engine::loaded_bytes;
use crate::family::generic_allowance;
use crate::gpu::Gpu;
use crate::job::{Attention, JobSpec, LossKernel, Precision, Strategy, Task};
use crate::model_type::StateLayers;
use crate::op::CONVOLUTION;
use crate::step::{TrainingLoop, training_loop};
use crate::trace::{Allocation, Trace};
use crate::units::Bytes;

/// What is smaller than this part of the peak did not make the figure what it is.
const WORTH_SAYING: u64 = 10;
/// The op of the math fallback that makes the scores.
const SAFE_SOFTMAX: &str = "_safe_softmax.default";

/// Where no fused kernel takes the calls, every layer keeps its scores: what turns a small job into a huge one.
pub(super) fn math_attention(job: &JobSpec, trace: &Trace, reserved: u64) -> Option<Caveat> {
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
pub(super) fn loss_scaling(job: &JobSpec) -> Option<Caveat> {
    let text = match job.precision {
        Precision::Fp16 if job.task.trains() => {
            "fp16 gradients underflow without loss scaling, and GradScaler refuses fp16 gradients: bf16, or amp-fp16 with fp32 \
             weights, trains"
        }
        Precision::AmpFp16 | Precision::Fp16Amp => {
            "loss scaling is simulated with steps that all happen: GradScaler leaves out a step whose gradients overflow, as \
             the first ones do"
        }
        _ => return None,
    };
    Some(Caveat::remark("loss_scaling", text))
}

pub(super) fn context_caveat(gpu: &Gpu) -> Option<Caveat> {
    gpu.context_bytes.is_none().then(|| {
        let text = "nobody measured the CUDA context of this GPU; it is taken to grow with the multiprocessors";
        Caveat::remark("context_not_measured", text)
    })
}

/// A tenth of the peak: an allowance, not a measurement.
pub(super) fn cudnn_caveat(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    (job.attention == Attention::Cudnn).then(|| {
        let text = "the workspace of cuDNN attention is not known; the range allows a tenth of the peak for it";
        Caveat::widening("cudnn_workspace", text, reserved / 10)
    })
}

/// `check_prefer_cudnn_attention` (sdp_utils.cpp, PyTorch 2.11 for CUDA 13): these devices ask cuDNN first.
pub(super) fn prefers_cudnn(job: &JobSpec) -> Option<Caveat> {
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
pub(super) fn gpu_sharers(job: &JobSpec) -> u64 {
    match job.parallel.strategy {
        Strategy::TensorParallel { size, .. } => size.max(1),
        Strategy::PipelineParallel { .. } => job.parallel.place_in_pipeline().0.max(1),
        _ => 1,
    }
}

/// Whether the model has as many parameters as somebody else counted. What a multimodal model has beyond them is left out,
/// not wrong: [`towers_caveat`] speaks of it.
pub(super) fn count_caveat(job: &JobSpec, parameters: u64) -> Option<Caveat> {
    let counted = job.model.beside.counted.as_ref()?;
    let is_left_out = job.model.beside.left_out.is_some() && counted.parameters > parameters;
    (counted.parameters != parameters && !is_left_out).then(|| {
        let text = format!("the model was built with {parameters} parameters, {} {}", counted.who, counted.parameters);
        let share = counted.parameters.abs_diff(parameters).div_ceil(gpu_sharers(job));
        Caveat::widening("parameter_count", text, share.saturating_mul(TRAINED_BYTES))
    })
}

/// The allowance is measured; it only holds for a model whose parameters are the right ones.
pub(super) fn generic_caveat(job: &JobSpec, reserved: u64, parameters: u64) -> Option<Caveat> {
    // Behind its tower it is mirrored.
    if job.model.beside.vision.is_some() {
        return None;
    }
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
pub(super) fn judge_caveat(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let model = &job.task.facts().judge()?.model;
    let is_partial = generic_allowance(&model.model_type).is_some() || model.beside.left_out.is_some();
    is_partial.then(|| {
        let text = format!(
            "the judge is a `{}`, which no family mirrors whole: the range allows a fifth of its weights, and it is not said \
             to fit",
            model.model_type
        );
        Caveat::widening("judge_generic", text, loaded_bytes(trace, "judge") / 5).open()
    })
}

/// The towers of a multimodal model: what is known of them is added, and what is not keeps the job from fitting surely.
pub(super) fn towers_caveat(job: &JobSpec, reserved: u64) -> Option<Caveat> {
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

/// Other kernels need other memory, and nobody measured it.
pub(super) fn linear_attention(job: &JobSpec) -> Option<Caveat> {
    let text = match job.model.facts().state {
        StateLayers::None => return None,
        StateLayers::DeltaRule => {
            "linear attention is what transformers computes without the packages flash-linear-attention and causal-conv1d; with them \
             other kernels run, whose memory is not estimated"
        }
        StateLayers::Convolution => {
            "short convolutions are what transformers computes without the package causal-conv1d, whose kernels make no padded result: \
             with it a step takes a little less"
        }
        StateLayers::StateSpace => {
            "state spaces are what transformers computes in PyTorch's own operators; with the packages mamba-ssm and causal-conv1d their \
             kernels run, which keep far less: a job with them takes less memory than this, and how much less is not estimated"
        }
    };
    Some(Caveat::remark("linear_attention_kernels", text))
}

/// What cuDNN's kernels may keep beside a convolution's tensors: a copy of each in another layout, as a rehearsal allows for.
pub(super) fn convolution_caveat(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let [patches, numbers, pixels] = convolved(job)?;
    let is_convolved = |allocation: &&Allocation| trace.origins[usize::from(allocation.origin)].op == CONVOLUTION;
    let output = trace.allocations.iter().filter(is_convolved).map(|output| output.bytes).max()?;
    let weights = (output / patches.max(1)).saturating_mul(numbers);
    let input = pixels.saturating_mul(4);
    let text = "cuDNN's workspace for the convolution that makes patches of images lies inside PyTorch's allocator and is documented \
                nowhere: none is counted, and the range allows for one more copy of its input, output and weights";
    Some(Caveat::adding("convolution", text, input.saturating_add(output).saturating_add(weights)))
}

/// The most channels that a convolution of the VAE has.
const VAE_CHANNELS: u64 = 512;

/// The same of a denoiser and of its VAE, where the one convolution that runs may read three times the numbers that it writes.
pub(super) fn denoiser_convolutions(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let Task::Diffusion(spec) = job.task else { return None };
    let is_convolved = |allocation: &&Allocation| trace.origins[usize::from(allocation.origin)].op == CONVOLUTION;
    let output = trace.allocations.iter().filter(is_convolved).map(|output| output.bytes).max()?;
    let levels = job.model.config.get("block_out_channels").and_then(serde_json::Value::as_array);
    let widest = levels.into_iter().flatten().filter_map(serde_json::Value::as_u64).max().unwrap_or(0);
    let widest = if spec.cache_latents { widest } else { widest.max(VAE_CHANNELS) };
    // Nine numbers of each of twice as many channels as it writes, in fp32.
    let weights = widest.saturating_mul(widest).saturating_mul(2 * 9 * 4);
    let text = "cuDNN's workspaces for convolutions lie inside PyTorch's allocator and are documented nowhere: none is counted, and the range \
                allows for one more copy of the largest one's input, output and weights";
    Some(Caveat::adding("convolution", text, output.saturating_mul(4).saturating_add(weights)))
}

/// Encoders that are on the device while latents or embeddings are computed before training, and the denoiser with them.
pub(super) fn encoders_caveat(job: &JobSpec, reserved: u64, parameters: u64) -> Option<Caveat> {
    let Task::Diffusion(spec) = job.task else { return None };
    let what = match (spec.cache_latents, spec.cache_text_embeddings) {
        (true, true) => "latents and embeddings",
        (true, false) => "latents",
        (false, true) => "embeddings",
        (false, false) => return None,
    };
    let dtype = job.precision.autocast_dtype().unwrap_or(job.precision.weight_dtype());
    let of_denoiser = if job.lora.is_some() { dtype } else { job.precision.weight_dtype() };
    let encoders = job.model.facts().encoder_parameters.saturating_mul(dtype.size());
    // A tenth more for what they compute.
    let before = parameters.saturating_mul(of_denoiser.size()).saturating_add(encoders + encoders / 10);
    let text = format!(
        "{what} are taken to come from a run before this one; the examples that compute them first have VAE and text encoders on the \
         device beside the denoiser for it, of {} in the published pipelines: the range allows for that moment",
        Bytes(encoders)
    );
    Some(Caveat::adding("encoders", text, before.saturating_sub(reserved)))
}

/// How many patches a pass makes of its images, the numbers of each, and those of all images.
fn convolved(job: &JobSpec) -> Option<[u64; 3]> {
    if let Some(vision) = &job.model.beside.vision {
        let (patches, numbers) = (vision.patches_of(job.micro_batch_size)?, vision.patch_numbers()?);
        return Some([patches, numbers, patches.saturating_mul(numbers)]);
    }
    let image = job.model.image().ok()?.or(job.model.pair_image().ok()?)?;
    let rows = job.micro_batch_size;
    let numbers = image.channels * image.patch[0] * image.patch[1];
    Some([rows.saturating_mul(image.patches()), numbers, rows.saturating_mul(image.numbers())])
}

/// For which images the answer holds.
pub(super) fn images_caveat(job: &JobSpec) -> Option<Caveat> {
    if let Some(image) = job.model.pair_image().ok().flatten() {
        let [height, width] = image.sides;
        let text =
            format!("the figures are of images of {height} by {width} pixels, as the processor resizes all of them");
        return Some(Caveat::remark("images", text));
    }
    let vision = job.model.beside.vision.as_ref()?;
    let ([height, width], tokens) = (vision.sides, vision.tokens().ok()?);
    let size =
        format!("{} images of {height} by {width} pixels in each row, {tokens} tokens each", vision.images_per_row);
    let text = match vision.takes_any_size() {
        true => format!(
            "the figures are of {size}: larger or more images need more, which max_pixels of the processor bounds"
        ),
        false => format!("the figures are of {size}, as the processor resizes all of them"),
    };
    Some(Caveat::remark("images", text))
}

/// Scratch space inside operators was measured on compute capability 8.0 and 9.0 only.
pub(super) fn device_caveat(gpu: &Gpu, reserved: u64) -> Option<Caveat> {
    let (major, minor) = gpu.compute_capability;
    (!matches!((major, minor), (8, 0) | (9, 0))).then(|| {
        let text = format!("scratch space of kernels was measured on sm_80 and sm_90, not on sm_{major}{minor}");
        Caveat::widening("device_not_measured", text, reserved / 100)
    })
}

pub(super) fn garbage_collection(job: &JobSpec) -> Option<Caveat> {
    (job.allocator.garbage_collection_threshold > 0.0).then(|| {
        let text = "reserved bytes are those without garbage collection, which acts only under a memory fraction";
        Caveat::remark("garbage_collection", text)
    })
}

/// Liger's patches bring other kernels along by default.
pub(super) fn liger_caveat(job: &JobSpec) -> Option<Caveat> {
    (job.logits.loss == LossKernel::Liger && !job.liger_kernels).then(|| {
        let text = "of Liger only the fused loss is simulated (liger_kernel_config with all else false); use_liger_kernel = true \
                    brings its norms, rotary embeddings and MLPs too";
        Caveat::remark("liger_loss_only", text)
    })
}

/// What the Trainer's loop may hold beyond a plain one: under autocast an fp32 copy of all logits, batches of a step that
/// come to the GPU together, and a twentieth for the rest.
pub(super) fn plain_loop(job: &JobSpec, reserved: u64) -> Option<Caveat> {
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
pub(super) fn loop_of_shards(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let is_sharded = matches!(job.parallel.strategy, Strategy::Fsdp2(_) | Strategy::Zero1 { .. });
    (is_sharded && training_loop(job) == TrainingLoop::Own).then(|| {
        let text = "the Trainer's loop was measured on one GPU and with DDP; how accelerate prepares a model that is sharded was \
                    not, and the range allows a twentieth of the peak";
        Caveat::widening("trainer_loop_of_shards", text, reserved / 20)
    })
}
