//! Fewer weights that are trained or held.

use super::{Remedy, Results, already_done, change_one, not_for};
use crate::job::Strategy;
use crate::job::keys;

pub(super) const LORA: Remedy = Remedy {
    name: "lora",
    text: "train adapters of rank 16 on all linear layers instead of the weights",
    results: Results::Changed,
    caution: "",
    apply: |job| match job.parallel.strategy {
        _ if job.lora.is_some() => already_done("adapters are trained already"),
        _ if !job.task.facts().takes_adapters() => not_for("the task trains all weights"),
        Strategy::None | Strategy::Fsdp2(_) => {
            Ok(vec![(keys::LORA_R, "16".to_owned()), (keys::LORA_TARGETS, "all-linear".to_owned())])
        }
        _ => not_for("adapters are not simulated under this strategy"),
    },
};

pub(super) const NO_REFERENCE: Remedy = Remedy {
    name: "no_reference",
    text: "leave the KL term out, and the reference model with it",
    results: Results::Changed,
    caution: "",
    apply: |job| match job.task.grpo() {
        Some(grpo) if grpo.beta > 0.0 => change_one(keys::GRPO_BETA, "0"),
        Some(_) => already_done("there is no reference model"),
        None => not_for("the task is no GRPO"),
    },
};

pub(super) const PRECOMPUTED_REFERENCE: Remedy = Remedy {
    name: "precomputed_reference",
    text: "compute the reference's log-probabilities once, before training",
    results: Results::Same,
    caution: "one pass over the data set before training is not in the factor",
    apply: |job| match job.task.facts().precomputed_reference() {
        Some((key, false)) => change_one(key, "true"),
        Some(_) => already_done("they are computed before training already"),
        None => not_for("the task has no reference whose log-probabilities can be computed before"),
    },
};
