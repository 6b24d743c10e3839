//! What is turned in which framework: the same remedy by each one's own flag.

use crate::memory::GpuMemory;
use crate::setting::{Framework, Setting};

/// A framework's flags for what memory depends on; `None` where it has none.
pub(super) struct Flags {
    pub(super) framework: Framework,
    /// Fewer samples at a time.
    pub(super) batch: &'static str,
    /// Flags that keep fewer activations.
    pub(super) activations: Option<&'static str>,
    /// Fewer processes that load data.
    pub(super) workers: Option<&'static str>,
    /// A longer patience of collectives.
    pub(super) timeout: Option<&'static str>,
}

const fn flags(
    framework: Framework,
    batch: &'static str,
    activations: Option<&'static str>,
    workers: Option<&'static str>,
    timeout: Option<&'static str>,
) -> Flags {
    Flags { framework, batch, activations, workers, timeout }
}

/// One line each, in the order of [`Framework`]'s list: the most telling first.
const FLAGS: &[Flags] = &[
    flags(Framework::Vllm, "--max-num-seqs 64 --max-model-len 8192", Some("--enforce-eager"), None, None),
    flags(Framework::Sglang, "--max-running-requests 64 --chunked-prefill-size 2048", None, None, None),
    flags(Framework::ComfyUi, "python main.py --lowvram  # smaller images or batches first", None, None, None),
    flags(
        Framework::Kohya,
        "--train_batch_size 1 --gradient_accumulation_steps 2*M",
        Some("--gradient_checkpointing --cache_latents"),
        Some("--max_data_loader_n_workers 1"),
        Some("--ddp_timeout 120"),
    ),
    flags(
        Framework::Fairseq,
        "--max-tokens N/2 --update-freq 2*M",
        Some("--checkpoint-activations"),
        Some("--num-workers 1"),
        None,
    ),
    flags(
        Framework::Megatron,
        "--micro-batch-size N/2",
        Some("--recompute-activations"),
        Some("--num-workers 1"),
        Some("--distributed-timeout-minutes 60"),
    ),
    flags(
        Framework::Ultralytics,
        "batch=N/2  # or batch=-1, which tries; imgsz smaller",
        None,
        Some("workers=2"),
        None,
    ),
    flags(
        Framework::Mmcv,
        "train_dataloader.batch_size=N/2",
        Some("model.backbone.with_cp=True"),
        Some("train_dataloader.num_workers=1"),
        None,
    ),
    flags(
        Framework::Lightning,
        "batch_size N/2 in the loader, Trainer(accumulate_grad_batches=2*M)",
        Some("torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)"),
        Some("DataLoader(num_workers=2)"),
        Some("DDPStrategy(timeout=timedelta(hours=2))"),
    ),
    flags(
        Framework::Ray,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=N/2  # the trainer's micro-batch",
        Some("actor_rollout_ref.model.enable_gradient_checkpointing=True"),
        None,
        None,
    ),
    flags(
        Framework::Trainer,
        "--per_device_train_batch_size N/2 --gradient_accumulation_steps 2*M",
        Some("--gradient_checkpointing true"),
        Some("--dataloader_num_workers 2"),
        Some("--ddp_timeout 7200"),
    ),
    flags(
        Framework::DeepSpeed,
        "\"train_micro_batch_size_per_gpu\": N/2, \"gradient_accumulation_steps\": 2*M",
        Some("model.gradient_checkpointing_enable()"),
        None,
        Some("deepspeed.init_distributed(timeout=timedelta(hours=2))"),
    ),
    flags(Framework::Jax, "a smaller batch in the script", Some("jax.checkpoint(f)  # around a layer"), None, None),
    flags(Framework::TensorFlow, "model.fit(..., batch_size=N//2)", Some("tf.recompute_grad(f)"), None, None),
];

/// Where no framework shows: PyTorch's own words.
pub(super) const PYTORCH: Flags = flags(
    Framework::Fsdp,
    "DataLoader(batch_size=N//2), and loss.backward() twice before optimizer.step()",
    Some("torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)"),
    Some("DataLoader(num_workers=2)"),
    Some("init_process_group(..., timeout=timedelta(hours=2))"),
);

/// The flags of the framework that the log shows.
pub(super) fn of(setting: &Setting) -> &'static Flags {
    FLAGS.iter().find(|flags| setting.has(flags.framework)).unwrap_or(&PYTORCH)
}

/// The flags for a message of GPU memory: PyTorch's own is never of a program of JAX or TensorFlow, and theirs are of
/// nothing else where the log shows them.
pub(super) fn of_memory(setting: &Setting, memory: &GpuMemory) -> &'static Flags {
    let is_beside = |flags: &&Flags| matches!(flags.framework, Framework::Jax | Framework::TensorFlow);
    let mut shown = FLAGS.iter().filter(|flags| setting.has(flags.framework));
    if memory.of_pytorch {
        return shown.find(|flags| !is_beside(flags)).unwrap_or(&PYTORCH);
    }
    if matches!(memory.backend, "XLA" | "TensorFlow") {
        return shown.find(is_beside).unwrap_or(of(setting));
    }
    of(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framework_stands_once() {
        for (at, flags) in FLAGS.iter().enumerate() {
            assert!(FLAGS[..at].iter().all(|other| other.framework != flags.framework) && !flags.batch.is_empty());
            let setting = Setting { frameworks: vec![flags.framework], ..Setting::default() };
            assert_eq!(of(&setting).batch, flags.batch);
        }
    }
}
