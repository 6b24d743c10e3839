//! What the guide of GRPO with a judge says: its batches, its GPUs, its ways to save memory.

use super::question::Question;
use tonnage_core::job::keys;

/// A batch, and what the guide gives it: activations, total, GPU.
pub type Batch = (u64, &'static str, &'static str, &'static str);
/// A GPU of the guide, the catalog's that it may be, and the guide's verdict.
pub type Card = (&'static str, &'static str, &'static str);

pub const LARGE: [Batch; 7] = [
    (1, "~1-2 GB", "~85-90 GB", "H100/A100"),
    (4, "~5-8 GB", "~90-95 GB", "H100"),
    (8, "~10-15 GB", "~94-103 GB", "H200 (recommended)"),
    (16, "~20-30 GB", "~110-130 GB", "H200 (tight)"),
    (32, "~40-60 GB", "~130-160 GB", "H200 (may OOM)"),
    (64, "~80-120 GB", "~170-220 GB", "❌ Too large"),
    (128, "~160-240 GB", "~250-350 GB", "❌ Will definitely OOM"),
];
pub const LARGE_CARDS: [Card; 6] = [
    ("H200, \"141 GB\"", "h200", "✅ Yes (tight)"),
    ("H100, \"96 GB\": GH200 96GB", "gh200", "⚠️ Maybe"),
    ("H100, \"96 GB\": H100 NVL 94GB", "h100-nvl", "⚠️ Maybe"),
    ("H100, \"96 GB\": H100 80GB", "h100", "⚠️ Maybe"),
    ("A100, 80 GB", "a100-80", "❌ No"),
    ("L40S, 48 GB", "l40s", "❌ No"),
];
pub const SMALL: [Batch; 6] = [
    (8, "~0.5-1 GB", "~6-8 GB", "✅ Any GPU"),
    (16, "~1-2 GB", "~7-9 GB", "✅ Any GPU"),
    (32, "~2-4 GB", "~8-11 GB", "✅ Any GPU"),
    (64, "~4-8 GB", "~10-15 GB", "✅ Any GPU"),
    (128, "~8-15 GB", "~14-22 GB", "✅ Any GPU (even L40S!)"),
    (256, "~16-30 GB", "~22-37 GB", "✅ A100/H100/H200"),
];
pub const SMALL_CARDS: [Card; 6] = [
    ("L40S, 48 GB", "l40s", "✅ Yes! Perfect"),
    ("A100, 80 GB", "a100-80", "✅ Yes! Plenty of room"),
    ("H100, \"96 GB\": H100 80GB", "h100", "✅ Yes!"),
    ("H200, 141 GB", "h200", "✅ batch 256+"),
    ("\"Any GPU\": T4", "t4", "✅"),
    ("\"Any GPU\": L4", "l4", "✅"),
];
/// A change to a job.
pub type Change = fn(&Question) -> Question;

pub const LARGE_OPTIONS: [(&str, &str, Change, &str); 9] = [
    (
        "batch 4, accumulated to 8",
        "\"reduces activation memory by ~50%\"",
        |job| job.with(keys::MICRO_BATCH_SIZE, 4).with(keys::GRADIENT_ACCUMULATION_STEPS, 2),
        "the logits of a pass halve; but gradients of the first pass now stay while the second runs, and states are most of it",
    ),
    (
        "batch 32 as 4 x 8",
        "\"simulate larger batches with less memory\"",
        |job| job.with(keys::GRADIENT_ACCUMULATION_STEPS, 4),
        "right, where groups stay whole: generation still takes all 32 rows at once",
    ),
    (
        "7B evaluator",
        "\"same size as training model\"",
        |job| job.with(keys::JUDGE_MODEL, "Qwen/Qwen2.5-7B"),
        "half as many weights, the same work",
    ),
    (
        "evaluator in 8 bits",
        "\"28 -> 14 GB\"",
        |job| job.with(keys::JUDGE_WEIGHTS, "int8"),
        "LLM.int8() halves the linear layers of the decoder; embeddings and head stay in bf16, and activations pass through int32",
    ),
    (
        "evaluator in 4 bits",
        "-",
        |job| job.with(keys::JUDGE_WEIGHTS, "nf4"),
        "NF4 in blocks of 64: 4.5 bits a weight, unpacked to bf16 one layer at a time",
    ),
    (
        "evaluator on another GPU",
        "-",
        |job| job.with(keys::JUDGE_PLACE, "other_gpu"),
        "the fuller of the two GPUs; the guide never separates devices",
    ),
    (
        "evaluator offloaded while it does not judge",
        "-",
        |job| job.with(keys::JUDGE_PLACE, "offload"),
        "its weights are in the host's memory when the policy trains",
    ),
    (
        "gradient checkpointing off",
        "\"if GRPOConfig supports it, enable it\"",
        |job| job.with(keys::GRADIENT_CHECKPOINTING, "false"),
        "it is TRL's default and on in all figures above",
    ),
    (
        "fp32 throughout",
        "\"bf16 saves ~50% vs fp32\"",
        |job| job.with(keys::PRECISION, "fp32"),
        "the saving is that of the states only",
    ),
];

pub const SMALL_OPTIONS: [(&str, &str, Change, &str); 3] = [
    (
        "batch 128 as 8 x 16",
        "-",
        |job| job.with(keys::MICRO_BATCH_SIZE, 16).with(keys::GRADIENT_ACCUMULATION_STEPS, 8),
        "the logits of 16 rows at a time, the same update",
    ),
    (
        "evaluator in 8 bits",
        "-",
        |job| job.with(keys::JUDGE_WEIGHTS, "int8"),
        "a small model's weights are not the memory",
    ),
    (
        "TRL 1.16's fused log-probabilities",
        "-",
        |job| job.with(keys::TRL, "1.16"),
        "head and log-softmax in tiles: the logits never exist",
    ),
];
