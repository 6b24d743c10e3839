//! What ranks that share the tokens of a row do not go with.

use crate::dtype::DType;
use crate::job::keys;
use crate::job::{Attention, Framework, Fsdp2, JobError, JobSpec, LossKernel, Strategy, Task, TransformersVersion};

use super::reasons::{Reason, refuse_first};

/// Refuses rows and ranks that do not divide, and what was not measured with ring attention.
pub(super) fn fits_context_parallel(job: &JobSpec) -> Result<(), JobError> {
    let Strategy::Fsdp2(fsdp2) = job.parallel.strategy else { return Ok(()) };
    let ranks = fsdp2.token_ranks;
    if ranks <= 1 {
        return Ok(());
    }
    if !job.parallel.world_size.is_multiple_of(ranks) {
        let problem = format!("`{}` {ranks} does not divide `world_size`", keys::FSDP2_CONTEXT_PARALLEL_SIZE);
        return Err(JobError::new(problem)
            .about(&[keys::FSDP2_CONTEXT_PARALLEL_SIZE, keys::WORLD_SIZE])
            .hint("as many groups of ranks share rows as it goes into `world_size`"));
    }
    if !job.seq_len.is_multiple_of(2 * ranks) {
        let least = 2 * ranks;
        let problem = format!(
            "`seq_len` {} is not a multiple of {least}: each of {ranks} ranks has two parts of a row",
            job.seq_len
        );
        let fits = (job.seq_len / least).max(1) * least;
        return Err(JobError::new(problem)
            .about(&[keys::SEQ_LEN, keys::FSDP2_CONTEXT_PARALLEL_SIZE])
            .hint(format!("set `seq_len` to {fits}")));
    }
    let reasons = training_reasons(job, fsdp2).into_iter().chain(model_reasons(job));
    refuse_first("context parallelism", keys::FSDP2_CONTEXT_PARALLEL_SIZE, reasons)
}

const LEAVE: &str = "leave it out";
const ONE_RANK: &str = "leave `fsdp2.context_parallel_size` out";

fn training_reasons(job: &JobSpec, fsdp2: Fsdp2) -> [Reason; 8] {
    let computes = fsdp2.param_dtype.unwrap_or(job.precision.weight_dtype());
    let in_bf16 = computes == DType::Bfloat16 && job.precision.autocast_dtype().is_none();
    [
        (
            keys::FRAMEWORK,
            job.framework != Framework::Loop,
            "loops of one's own are what was measured",
            "set framework = \"loop\"",
        ),
        (keys::TASK, job.task != Task::CausalLm || !job.train_mode, "next tokens are what was measured", ONE_RANK),
        (
            keys::PRECISION,
            !in_bf16,
            "layers in bf16 are what was measured",
            "set precision = \"bf16\", or fp32 with fsdp2.param_dtype = \"bf16\"",
        ),
        (keys::FSDP2_REPLICATE_SIZE, fsdp2.replicate_size > 1, "HSDP was not measured with it", LEAVE),
        (keys::FSDP2_CPU_OFFLOAD, fsdp2.cpu_offload.is_some(), "offloaded shards were not measured with it", LEAVE),
        (keys::LORA_R, job.lora.is_some(), "adapters were not measured with it", ONE_RANK),
        (keys::QUANTIZATION, job.quantization.is_some(), "quantized weights were not measured with it", ONE_RANK),
        (
            keys::TRANSFORMERS,
            job.transformers != TransformersVersion::DEFAULT,
            "other versions were not measured",
            LEAVE,
        ),
    ]
}

fn model_reasons(job: &JobSpec) -> [Reason; 7] {
    let config = &job.model.config;
    let has_windows = config.flag("use_sliding_window", false).unwrap_or(true);
    let drops_out = config.number("attention_dropout", 0.0).unwrap_or(1.0) > 0.0;
    let heads = config.size("num_attention_heads", 1).unwrap_or(1).max(1);
    let width = config.size("hidden_size", 0).unwrap_or(0) / heads;
    let head_dim = config.size("head_dim", width).unwrap_or(width);
    let caches = job.use_cache && !job.turns_cache_off();
    let logits = &job.logits;
    let is_whole = logits.loss == LossKernel::Full && logits.logits_to_keep.is_none();
    [
        (
            keys::MODEL,
            !job.model.facts().shares_tokens || has_windows || drops_out || !head_dim.is_multiple_of(8),
            "full attention of Llama, Qwen2 and Qwen3 without dropout is what was measured",
            ONE_RANK,
        ),
        (keys::ATTENTION, job.attention != Attention::Sdpa, "it is SDPA that PyTorch replaces", LEAVE),
        (
            keys::GPU,
            job.gpu.compute_capability < (8, 0),
            "the flash kernel, which it runs, is of compute capability 8.0 and later",
            ONE_RANK,
        ),
        (keys::PADDED, job.padded == Some(true), "it knows no masks", LEAVE),
        (
            keys::USE_LIGER_KERNEL,
            job.liger_kernels || !job.kernels.is_empty() || !is_whole,
            "logits of all positions and the model's own kernels were measured",
            LEAVE,
        ),
        (keys::USE_CACHE, caches, "keys of other ranks are not cached", "set use_cache = false"),
        (
            keys::ACTIVATION_OFFLOADING,
            job.activation_offload.is_some() || job.use_reentrant,
            "offloaded activations and the older form of checkpoints were not measured",
            LEAVE,
        ),
    ]
}
