//! What the GPU holds between passes, on the host instead.

use super::{Applied, Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{DeepSpeed, Fsdp1, Fsdp2, JobSpec, Strategy};

pub(super) const TO_HOST: Remedy = Remedy {
    name: "cpu_offload",
    text: "keep shards, gradients and optimizer state on the host, where the step is taken",
    results: Results::Rounding,
    caution: "the optimizer's step runs on the host's processors, and the host must have the memory",
    apply: offload_to_host,
};

fn offload_to_host(job: &JobSpec) -> Applied {
    match job.parallel.strategy {
        Strategy::Fsdp1(Fsdp1 { cpu_offload: false, .. }) if job.gradient_accumulation_steps == 1 => {
            change_one(keys::FSDP1_CPU_OFFLOAD, "true")
        }
        Strategy::Fsdp2(Fsdp2 { cpu_offload: None, .. }) => change_one(keys::FSDP2_CPU_OFFLOAD, "true"),
        Strategy::DeepSpeed(DeepSpeed { offload_optimizer: None, .. }) => {
            change_one(keys::DEEPSPEED_OFFLOAD_OPTIMIZER, "true")
        }
        _ if job.parallel.steps_on_host() => already_done("it is on the host already"),
        _ => not_for("nothing is sharded"),
    }
}
