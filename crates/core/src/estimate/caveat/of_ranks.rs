//! What is not known of ranks that share a model's layers, its stages, the tokens of its rows, or DeepSpeed's parts.

use super::Caveat;
use crate::dtype::DType;
use crate::job::check::{runs_pytorch_schedule, why_approximate};
use crate::job::{DeepSpeed, JobSpec, LossKernel, Rollout, Schedule, Strategy, Task, TensorPlan};
use crate::step::{TrainingLoop, training_loop};
use crate::units::MIB;

/// A fifth of the peak: an allowance, not a measurement.
pub(super) fn split_caveat(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let (code, text) = match job.parallel.strategy {
        Strategy::TensorParallel { plan: TensorPlan::Transformers, .. } => return None,
        Strategy::TensorParallel { plan: TensorPlan::Megatron, .. } => {
            let text = "the rank's share is a model with its part of heads, inner width and vocabulary, as Megatron divides them; how the parts \
                        communicate was not measured, the range allows a fifth of the peak (tensor.plan = \"transformers\" was measured)";
            ("tensor_parallel_assumed", text.to_owned())
        }
        Strategy::PipelineParallel { .. } if runs_pytorch_schedule(job) => return None,
        Strategy::PipelineParallel { .. } => ("pipeline_parallel_assumed", approximate_stage(job)),
        Strategy::DeepSpeed(DeepSpeed { stage, .. }) => return deepspeed_caveat(job, stage, reserved),
        _ => return None,
    };
    Some(Caveat::widening(code, text, reserved / 5))
}

fn approximate_stage(job: &JobSpec) -> String {
    let why = why_approximate(job)
        .map_or_else(String::new, |why| format!("; it is not run as PyTorch's schedules run it, because of {why}"));
    format!(
        "the stage is a model with its layers, whose open micro-batches keep their activations; stages before the last \
         were measured within 5 % under PyTorch's schedules, the range allows a fifth of the peak{why}"
    )
}

/// PyTorch's schedules (torch/distributed/pipelining, PyTorch 2.11) keep what the last stage returns of every micro-batch until the step
/// is over, and join it then; Megatron's and DeepSpeed's do not.
pub(super) fn kept_outputs(job: &JobSpec) -> Option<Caveat> {
    let Strategy::PipelineParallel { stages, schedule, .. } = job.parallel.strategy else { return None };
    if runs_pytorch_schedule(job) {
        return Some(kept_sends(job, schedule));
    }
    if stages < 2 || job.parallel.place_in_pipeline().1 + 1 != stages {
        return None;
    }
    let vocabulary = job.model.config.size("vocab_size", 0).unwrap_or(0);
    let dtype = job.precision.autocast_dtype().unwrap_or(job.precision.weight_dtype());
    let rows = job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps);
    let logits = rows.saturating_mul(job.seq_len).saturating_mul(vocabulary).saturating_mul(dtype.size());
    let text = "torch.distributed.pipelining keeps the last stage's logits of all micro-batches of a step and joins them, Megatron and \
                DeepSpeed do not: the range allows for both copies";
    Some(Caveat::adding("pipeline_outputs", text, logits.saturating_mul(2)))
}

/// ProcessGroupNCCL keeps what it sends until that is waited for, or its watchdog saw the end (ProcessGroupNCCL.cpp, `stash`): GPipe waits
/// for gradients at the end of a step, interleaved schedules for all that they send. The group that was measured keeps nothing.
fn kept_sends(job: &JobSpec, schedule: Schedule) -> Caveat {
    let hidden = job.model.config.size("hidden_size", 0).unwrap_or(0);
    let tokens = job.micro_batch_size.saturating_mul(job.seq_len);
    let sent = tokens.saturating_mul(hidden).saturating_mul(job.precision.weight_dtype().size());
    let passes = match schedule {
        Schedule::OneForwardOneBackward => 2,
        Schedule::GPipe => job.gradient_accumulation_steps,
        Schedule::Interleaved => {
            let stages = job.parallel.stages_of_rank().count() as u64;
            stages.saturating_mul(job.gradient_accumulation_steps).saturating_mul(2)
        }
    };
    let text = "stages of transformers' layers under torch.distributed.pipelining, not Megatron's or DeepSpeed's; NCCL may keep what a rank \
                sends until the schedule waits for it: the range allows for that";
    Caveat::adding("pipeline_sends", text, sent.saturating_mul(passes))
}

/// What was not measured of DeepSpeed: a training by `deepspeed.initialize` was.
fn deepspeed_caveat(job: &JobSpec, stage: u8, reserved: u64) -> Option<Caveat> {
    let is_kept = job.model.facts().has_experts || job.logits.loss == LossKernel::Liger;
    if stage == 3 && is_kept {
        let text = "DeepSpeed's stage 3 was not measured with weights that are read outside of the layer that has them, as stacks of \
                    experts and Liger's loss read them: the range allows a quarter of the peak";
        return Some(Caveat::widening("deepspeed_assumed", text, reserved / 4));
    }
    let is_measured = match job.task {
        Task::CausalLm => true,
        Task::MaskedLm => stage < 3,
        _ if job.precision.scales_loss() || job.parallel.steps_on_host() => false,
        Task::Grpo(ref grpo) => stage < 3 && grpo.rollout == Rollout::Generate,
        _ => job.task.facts().learns_preferences(),
    };
    if !is_measured || job.quantization.is_some() {
        let text = "DeepSpeed was measured training a language model, preferences and rollouts: with this task or a quantized base the \
                    range allows a fifth of the peak";
        return Some(Caveat::widening("deepspeed_assumed", text, reserved / 5));
    }
    if training_loop(job) == TrainingLoop::Own && stage == 3 {
        // Eight of ten trainings were equal, with adapters too; two that accumulate gradients lay up to 0.7 % below the answer.
        let text =
            "DeepSpeed's stage 3 was measured under the Trainer with few jobs: the range allows a fiftieth of the peak";
        return Some(Caveat::widening("deepspeed_under_trainer", text, reserved / 50));
    }
    if training_loop(job) == TrainingLoop::Own {
        // Seven trainings without adapters lay between the answer and 9 % below it, five with adapters were equal.
        let text = "DeepSpeed was measured in a plain loop: under the Trainer, which steps before it lets go of the batch, the \
                    range allows an eighth of the peak";
        return Some(Caveat::widening("deepspeed_under_trainer", text, reserved / 8));
    }
    let text = "DeepSpeed is simulated as 0.19.8, the version that was measured";
    Some(Caveat::remark("deepspeed_version", text))
}

/// The first of ranks that share tokens is simulated. Others keep parts of gradients of keys and values in fp32 twice, or the result once
/// more, while they merge them (testdata/families/context_parallel_cases.json has ranks of each kind); NCCL keeps keys and values that it
/// sends until they are waited for. What they differ by may take a segment more.
pub(super) fn ring_ranks(job: &JobSpec) -> Option<Caveat> {
    let ring = job.parallel.ring()?;
    let size = |key, default| job.model.config.size(key, default).unwrap_or(default).max(1);
    let heads = size("num_attention_heads", 1);
    let key_value_heads = size("num_key_value_heads", heads);
    let head_dim = size("head_dim", size("hidden_size", 1) / heads);
    let of_token =
        2 * key_value_heads * (DType::Float32.size() + DType::Bfloat16.size()) + heads * DType::Bfloat16.size();
    let tokens = job.micro_batch_size.saturating_mul(job.seq_len / ring.ranks);
    let bytes = tokens.saturating_mul(head_dim).saturating_mul(of_token);
    let text = "the first of the ranks that share tokens is simulated: others hold keys, values and their gradients once more while ring \
                attention merges them, and so may NCCL; the range allows for that";
    Some(Caveat::adding("context_parallel_ranks", text, bytes.saturating_add(LARGEST_SHARED_SEGMENT)))
}

/// The largest segment that blocks of several tensors lie in (`kLargeBuffer`).
const LARGEST_SHARED_SEGMENT: u64 = 20 * MIB;
