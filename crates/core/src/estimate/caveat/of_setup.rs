//! What is not known of what lies round the model: packages, ranks, versions, engines, what was left out.

use super::Caveat;
use crate::estimate::breakdown::lasting_bytes;
use crate::estimate::engine::loaded_bytes;
use crate::job::{
    Allowance, Attention, CheckpointPolicy, Framework, JobSpec, JudgeWeights, Rollout, Strategy, TransformersVersion,
};
use crate::step::{Repetition, WANDERING_ALLOWANCE};
use crate::trace::{Category, Stride, Trace};
use crate::units::{Bytes, MIB};

/// An allowance, not a measurement: users report about this much a rank with four ranks.
const NCCL_ALLOWANCE: u64 = 1 << 30;

pub(super) fn nccl_caveat(job: &JobSpec) -> Option<Caveat> {
    (job.parallel.world_size > 1).then(|| {
        let text = "NCCL's communicators and channels lie outside PyTorch's allocator and were not measured; the range allows \
                    1 GiB a rank";
        Caveat::adding("nccl_not_measured", text, NCCL_ALLOWANCE)
    })
}

/// What a config of the trainer says that no key says.
pub(super) fn left_open(job: &JobSpec, trace: &Trace, reserved: u64) -> impl Iterator<Item = Caveat> {
    job.left_open.iter().map(move |left| match left.allowance {
        Allowance::None => Caveat::remark("config", &left.text),
        Allowance::Less => Caveat::saving("config_saves", &left.text, reserved),
        Allowance::Fifth => Caveat::widening("config_assumed", &left.text, reserved / 5),
        Allowance::Fiftieth => Caveat::widening("config_measured_nearby", &left.text, reserved / 50),
        Allowance::Unknown => Caveat::remark("config_not_simulated", &left.text).open(),
        Allowance::AllButStates => {
            let beside = reserved.saturating_sub(lasting_bytes(trace));
            Caveat::saving("config_simulated_in_part", &left.text, beside).open()
        }
    })
}

/// What was measured of mixtures of experts on one GPU alone, whose weights were there before.
pub(super) fn experts_caveats(job: &JobSpec, trace: &Trace, reserved: u64) -> [Option<Caveat>; 3] {
    if !job.model.facts().has_experts {
        return [None, None, None];
    }
    let on_ranks = (job.parallel.world_size > 1).then(|| {
        if matches!(job.parallel.strategy, Strategy::Fsdp2(_)) && job.quantization.is_some() {
            // testdata/families/fsdp_qlora_cases.json: one equal, one of 3 layers on 4 ranks reserved 7.0 % more.
            let text = "of two mixtures of experts on a quantized base that FSDP2 sharded one reserved as much as is estimated and one \
                        7 % more: the range allows a tenth of the peak";
            return Caveat::widening("experts_on_ranks", text, reserved / 10);
        }
        if matches!(job.parallel.strategy, Strategy::Fsdp1(_)) && job.transformers.loops_over_experts() {
            // docs/published.md, `mixtral-fsdp1`.
            let text = "published peaks of Mixtral with adapters under FSDP1 and transformers 4.48 lie up to 5 % above what is simulated, a \
                        layer's gathered weights more: the range allows a tenth of the peak";
            return Caveat::widening("experts_on_ranks", text, reserved / 10);
        }
        let text = "mixtures of experts were measured on one GPU alone: on several ranks the range allows a fiftieth of the peak";
        Caveat::widening("experts_on_ranks", text, reserved / 50)
    });
    let merged = (job.device_map && job.framework == Framework::Trl && job.parallel.world_size == 1 && job.quantization.is_none()).then(|| {
        let largest = trace.allocations.iter().filter(|one| one.category == Category::Parameter).map(|one| one.bytes).max();
        let text = "a checkpoint has each expert's weights apart: loaded by device_map they are joined on the GPU, which was \
                    not measured; the range allows the largest of them twice";
        Caveat::widening("experts_joined", text, 2 * largest.unwrap_or_default())
    });
    [on_ranks, merged, uneven_experts(job)]
}

/// What all of a micro-batch's tokens take within one expert: its projections, their product and the gradients of both, wherever experts
/// run one after another.
fn uneven_experts(job: &JobSpec) -> Option<Caveat> {
    if !job.transformers.loops_over_experts() {
        return None;
    }
    let width = |key| job.model.config.size(key, 0).unwrap_or(0);
    let of_token = 6 * width("intermediate_size") + 4 * width("hidden_size");
    let tokens = job.micro_batch_size.saturating_mul(job.seq_len);
    let bytes = tokens.saturating_mul(of_token).saturating_mul(job.precision.weight_dtype().size());
    let text = "experts run one after another on the tokens that chose them, as many for each here: the range allows for all tokens in \
                one expert";
    Some(Caveat::adding("experts_load", text, bytes))
}

/// Of the published totals of such runs that lie below their card (docs/published.md, `device-total`), the highest is this many
/// percent of our reserved bytes above ours.
const SILICON_ALLOWANCE_PERCENT: u64 = 9;

/// What real allocators held in training with transformers 4, beyond what is simulated of it.
pub(super) fn silicon_caveat(job: &JobSpec, reserved: u64) -> Option<Caveat> {
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
pub(super) fn transformers_caveat(job: &JobSpec, reserved: u64) -> Option<Caveat> {
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
    if !version.is_newer() && !job.model.facts().has_layers_of(version) {
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

/// Copies of an attention's output that a padded batch makes beside those of its layers: queries, keys and values without
/// padding while the kernel runs.
const COPIES_WHILE_IT_RUNS: u64 = 3;

/// Rows that are padded are copied for `flash_attn_varlen_func`, and each layer keeps its output twice, without padding and
/// with it (transformers 5.17, modeling_flash_attention_utils.py).
pub(super) fn flash_attn_package(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    if job.attention != Attention::FlashAttention2 {
        return None;
    }
    let from_source = "what flash-attn's kernels allocate comes from its source (2.8), not from a measurement on a GPU";
    if job.padding_free {
        let text = format!(
            "{from_source}; rows that lie end to end are simulated as rows of their own: what flash_attn_varlen_func takes for each \
             sequence was not measured, and the range allows a twentieth of the peak"
        );
        return Some(Caveat::widening("flash_attn_from_source", text, reserved / 20));
    }
    if job.micro_batch_size == 1 || job.padded == Some(false) {
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

/// What measured jobs with other programs' kernels reserved beyond what is simulated (testdata/accuracy_foak.txt: 19 of 21 equal, the
/// others 4.4 and 4.6 % more).
pub(super) fn other_kernels(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    (!job.kernels.is_empty()).then(|| {
        let text = "of the jobs measured with fms-acceleration's kernels most reserved what is estimated and some up to 4.6 % more: the \
                    range allows a twentieth";
        Caveat::adding("kernels", text, reserved / 20)
    })
}

/// What DoRA's preference jobs reserved beyond what is simulated (testdata/accuracy_adapters.txt: two of five a segment more).
pub(super) fn dora_segments(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let has_dora = job.lora.as_ref().is_some_and(|lora| lora.use_dora);
    (has_dora && job.task.facts().learns_preferences()).then(|| {
        let text = "of the jobs with DoRA that were measured some of these trainers' reserved up to 1.6 % more: the range allows a \
                    twentieth";
        Caveat::adding("dora", text, reserved / 20)
    })
}

/// An allowance, not a measurement: Inductor times the kernels of a step beside a buffer as large as the L2 cache, 126 MB at most
/// (Blackwell), and on clones that it keeps below the peak so far (`copy_args_to_cpu_if_needed`, torch 2.11).
const COMPILING_ALLOWANCE: u64 = 192 * MIB;

pub(super) fn compiled_step(job: &JobSpec) -> Option<Caveat> {
    (job.task.trains() && job.optimizer.is_compiled()).then(|| {
        let text = "torchao's step is compiled: where Inductor's cache does not have it yet, its kernels are timed in the first step, \
                    beside a buffer of the GPU's L2 cache: the range allows 192 MiB";
        Caveat::adding("compiled_step", text, COMPILING_ALLOWANCE)
    })
}

/// States of a paged optimizer, which no allocator of PyTorch's has.
pub(crate) fn paged_states(bytes: u64) -> Option<Caveat> {
    (bytes > 0).then(|| {
        let text = format!(
            "{} of the optimizer's states are in managed memory: CUDA brings them to the GPU for the step as far as there is room, and \
             leaves the rest on the host, which must have that much; they are not in the total",
            Bytes(bytes)
        );
        Caveat::remark("paged_states", text)
    })
}

/// A twentieth of the judge's weights: an allowance, not a measurement.
pub(super) fn quantized_judge(job: &JobSpec, trace: &Trace) -> Option<Caveat> {
    let weights = job.task.facts().judge()?.weights;
    matches!(weights, JudgeWeights::Int8 | JudgeWeights::Nf4).then(|| {
        let text = "the judge's linear layers are simulated from bitsandbytes' source (0.50) and were not measured: head and \
                    embeddings in bf16, int8 without outlier columns, nf4 unpacked whole for more than 4 rows; the range allows \
                    a twentieth of its weights";
        Caveat::widening("judge_quantized", text, loaded_bytes(trace, "judge") / 20)
    })
}

/// An allowance, not a measurement: CUDA graphs are captured beyond the share, and stay when the engine sleeps.
const ENGINE_ALLOWANCE: u64 = 1 << 30;

pub(super) fn engine_caveat(job: &JobSpec) -> Option<Caveat> {
    let Rollout::Vllm { sleep_mode, .. } = job.task.grpo()?.rollout else { return None };
    let asleep = if sleep_mode { ", and to hold nothing of it asleep" } else { "" };
    let text = format!(
        "what the trainer reserves is calculated; the vLLM engine is assumed to fill its share of the GPU from its start \
         on{asleep}, and was not measured: the range allows 1 GiB more, for CUDA graphs and NCCL"
    );
    Some(Caveat::adding("vllm_assumed", text, ENGINE_ALLOWANCE))
}

pub(super) fn repeats_caveat(job: &JobSpec, run: Repetition) -> Option<Caveat> {
    let whole = run.steps == job.steps && run.passes == job.gradient_accumulation_steps;
    (!whole).then(|| {
        let text = format!(
            "{} of {} steps and {} of {} passes were simulated: the others ask for the same again, if perhaps elsewhere",
            run.steps, job.steps, run.passes, job.gradient_accumulation_steps
        );
        if run.small_blocks_wander {
            let text = format!("{text}; requests of up to 1 MiB never lay as before, and the range allows {} for them", Bytes(WANDERING_ALLOWANCE));
            return Caveat::widening("repetition_left_out", text, WANDERING_ALLOWANCE);
        }
        Caveat::remark("repetition_left_out", text)
    })
}

/// Jobs that were replayed with all tokens and with fewer were off by up to 2.9 % of the peak (`step/tokens.rs`, tests).
const TOKENS_ALLOWANCE_PERCENT: u64 = 4;
/// Those whose small requests were given blocks in a few tokens alone, by up to 4 MiB, two segments of the
/// small pool (the same tests).
const SMALL_ALLOWANCE: u64 = 32 * MIB;

/// Of very long generations a replay leaves something out.
pub(super) fn replayed_tokens(trace: &Trace, reserved: u64) -> Option<Caveat> {
    let Stride { times, small } = trace.replayed_stride();
    if trace.passes_over_segments() {
        let text = format!(
            "of the tokens between the first and the last that are generated, one of {times} was replayed: the segments that \
             the growing cache would leave behind are not all counted, and there is no upper bound; ask about one GPU, or \
             fewer tokens or rows"
        );
        return Some(Caveat::widening("tokens_left_out", text, reserved / 100 * TOKENS_ALLOWANCE_PERCENT).open());
    }
    if times > 1 {
        let text = format!(
            "of the tokens between the first and the last that are generated, one of {times} was replayed: what the growing \
             cache leaves free may lie elsewhere, and the range allows {TOKENS_ALLOWANCE_PERCENT} % of the peak"
        );
        return Some(Caveat::widening("tokens_left_out", text, reserved / 100 * TOKENS_ALLOWANCE_PERCENT));
    }
    (small > 1).then(|| {
        let text = format!(
            "of the tokens between the first and the last that are generated, one of {small} was replayed with its requests \
             of up to 1 MiB, the others without: what those leave free may lie elsewhere, and the range allows {}",
            Bytes(SMALL_ALLOWANCE)
        );
        Caveat::widening("tokens_left_out", text, SMALL_ALLOWANCE)
    })
}
