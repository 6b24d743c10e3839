//! The logits and their copies.

use super::{Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{Framework, LogProbs, LossKernel, LossOf, SwarmLogProbs};
use crate::model_type::Liger;

pub(super) const LIGER: Remedy = Remedy {
    name: "fused_loss",
    text: "compute head and loss in chunks (Liger): the logits never exist as a whole",
    results: Results::Rounding,
    caution: "where the change is loss = \"liger\", the Trainer's flag replaces layers too, which is not counted",
    apply: |job| match (job.task.facts().loss(), job.logits.loss) {
        (LossOf::NextToken, _) if job.framework == Framework::Trl => already_done("SFTTrainer's own head is fused"),
        (LossOf::NextToken, LossKernel::Full) if job.model.facts().liger == Liger::Whole => {
            change_one(keys::USE_LIGER_KERNEL, "true")
        }
        (LossOf::NextToken, LossKernel::Full) => change_one(keys::LOSS, "liger"),
        (LossOf::NextToken, LossKernel::Liger) => already_done("the loss is fused already"),
        _ => not_for("the task has a loss of its own"),
    },
};

pub(super) const FUSED_LOG_PROBS: Remedy = Remedy {
    name: "fused_log_probs",
    text: "compute log-probabilities in tiles, as TRL from 1.16 on does by itself",
    results: Results::Rounding,
    caution: "",
    apply: |job| match job.task.grpo() {
        Some(grpo) if grpo.log_probs == LogProbs::FullLogits => change_one(keys::GRPO_LOG_PROBS, "fused"),
        Some(_) => already_done("log-probabilities are fused already"),
        None => not_for("the task is no GRPO"),
    },
};

pub(super) const COMPLETION_LOGITS: Remedy = Remedy {
    name: "completion_logits",
    text: "compute the logits of completions only, not those of prompts",
    results: Results::Same,
    caution: "",
    apply: |job| match job.task.swarm() {
        Some(swarm) if !swarm.logits_to_keep => change_one(keys::SWARM_LOGITS_TO_KEEP, "true"),
        Some(_) => already_done("prompts have no logits already"),
        None => not_for("the job is no swarm"),
    },
};

pub(super) const CHUNKED_HEAD: Remedy = Remedy {
    name: "chunked_head",
    text: "compute head and loss for a few rows at a time, and again in backward",
    results: Results::Same,
    caution: "",
    apply: |job| match job.task.swarm() {
        Some(swarm) if !matches!(swarm.log_probs, SwarmLogProbs::ChunkedHead { .. }) => {
            change_one(keys::SWARM_LOG_PROBS, "chunked_head")
        }
        Some(_) => already_done("head and loss are in chunks already"),
        None => not_for("the job is no swarm"),
    },
};
