//! Adapters on parameters of experts, which are not simulated: what is estimated in their place.

use tonnage_core::job::{Allowance, JobErrorKind, JobSource, LeftOpen, Override, Task, keys};
use tonnage_core::step::{SimulateError, simulate};

/// Names that peft takes for parameters of experts (0.21, utils/transformers_weight_conversion.py), and their routers'.
const OF_EXPERTS: [&str; 8] = ["gate", "gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3"];
/// Linear layers of attention under the names that mixtures of experts have for them.
const OF_ATTENTION: &str = "q_proj,k_proj,v_proj,o_proj,q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj,in_proj_qkvz,in_proj_ba,in_proj_qkv,\
                            in_proj_z,in_proj_a,in_proj_b,out_proj";
const LEFT_OUT: &str = "adapters that peft makes on the parameters of experts are not simulated: the figure has those on other layers alone";

/// The job with adapters on other layers alone, where experts would have some.
pub fn without_experts(source: JobSource) -> JobSource {
    let said = |given: &&mut Override| given.key == keys::LORA_TARGETS;
    let mut other = source.clone();
    let Some(targets) = other.overrides.iter_mut().rev().find(said) else { return source };
    if !meets_experts(&source) {
        return source;
    }
    targets.value = other_layers(&targets.value);
    other.left_open([LeftOpen { text: LEFT_OUT.to_owned(), allowance: Allowance::Unknown }])
}

/// Whether such a job would be refused for them: one short row of it says so.
fn meets_experts(source: &JobSource) -> bool {
    let Ok(resolved) = source.resolve(&[]) else { return false };
    let mut job = resolved.job;
    let has_experts = ["num_experts", "num_local_experts", "n_routed_experts"];
    if job.task != Task::CausalLm || !has_experts.iter().any(|key| job.model.config.get(key).is_some()) {
        return false;
    }
    (job.micro_batch_size, job.seq_len, job.gradient_accumulation_steps, job.steps) = (1, 8, 1, 1);
    match simulate(&job) {
        Err(SimulateError::Job(error)) => {
            error.key() == Some(keys::LORA_TARGETS) && error.kind == JobErrorKind::Unsimulated
        }
        _ => false,
    }
}

fn other_layers(targets: &str) -> String {
    let is_other = |name: &&str| name.rsplit('.').next().is_some_and(|last| !OF_EXPERTS.contains(&last));
    let listed = targets.trim_matches(['[', ']']).split(',').map(|name| name.trim().trim_matches(['"', '\'']));
    let named: Vec<&str> = listed.filter(|name| !name.starts_with("all-linear")).filter(is_other).collect();
    if named.is_empty() { OF_ATTENTION.to_owned() } else { named.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_experts_are_left_out() {
        assert_eq!(other_layers("q_proj,shared_expert.up_proj,o_proj"), "q_proj,o_proj");
        assert_eq!(other_layers("all-linear-names"), OF_ATTENTION);
        assert_eq!(other_layers("gate_proj,up_proj,down_proj"), OF_ATTENTION);
    }

    #[test]
    fn only_jobs_that_meet_experts_change() {
        let job = |model: &str, targets: &str| {
            let source = JobSource::model(model).set(keys::LORA_R, 8).set(keys::LORA_TARGETS, targets);
            let changed = without_experts(source);
            changed.overrides.iter().rev().find(|given| given.key == keys::LORA_TARGETS).unwrap().value.clone()
        };
        assert_eq!(job("Qwen/Qwen3-30B-A3B", "q_proj,up_proj,gate_proj,down_proj"), "q_proj");
        assert_eq!(job("Qwen/Qwen3-30B-A3B", "q_proj"), "q_proj");
        assert_eq!(job("Qwen/Qwen2.5-0.5B", "q_proj,up_proj"), "q_proj,up_proj");
    }
}
