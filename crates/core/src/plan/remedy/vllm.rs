//! The engine that generates beside the trainer.

use super::{Declined, Remedy, Results, already_done, change_one};
use crate::job::keys;
use crate::job::{JobSpec, Rollout};

/// Its share of the GPU, and whether it sleeps.
fn vllm_engine(job: &JobSpec) -> Result<(f64, bool), Declined> {
    match job.task.grpo().map(|grpo| grpo.rollout) {
        Some(Rollout::Vllm { gpu_memory_utilization, sleep_mode }) => Ok((gpu_memory_utilization, sleep_mode)),
        Some(Rollout::Generate) | None => Err(Declined::NotApplicable("there is no vLLM engine")),
    }
}

pub(super) const SLEEP: Remedy = Remedy {
    name: "vllm_sleep",
    text: "let the engine give its memory back while the policy trains",
    results: Results::Same,
    caution: "",
    apply: |job| {
        if vllm_engine(job)?.1 {
            already_done("the engine sleeps already")
        } else {
            change_one(keys::VLLM_SLEEP_MODE, "true")
        }
    },
};

pub(super) const SMALLER_SHARE: Remedy = Remedy {
    name: "vllm_smaller_share",
    text: "give the engine two thirds of its share of the GPU",
    results: Results::Same,
    caution: "a smaller cache holds fewer completions at once, which is not in the factor",
    apply: |job| change_one(keys::VLLM_GPU_MEMORY_UTILIZATION, format!("{:.2}", vllm_engine(job)?.0 * 2.0 / 3.0)),
};
