//! What is not known of a job that offloads to the host.

use super::Caveat;
use crate::job::{DeepSpeed, Fsdp1, Fsdp2, JobSpec, Strategy};
use crate::step::{TrainingLoop, training_loop};

/// What the host's figure is of, and what was not measured of the GPU's.
pub(in crate::estimate) fn offloaded(job: &JobSpec, reserved: u64) -> Vec<Caveat> {
    // What was measured in a plain loop alone.
    let of_loops = match job.parallel.strategy {
        Strategy::Fsdp1(Fsdp1 { cpu_offload: true, .. }) => Some("FSDP's"),
        Strategy::Fsdp2(Fsdp2 { cpu_offload: Some(_), .. }) => Some("FSDP's"),
        Strategy::DeepSpeed(DeepSpeed { offload_optimizer, offload_param, stage, .. })
            if offload_optimizer.is_some() || offload_param.is_some() =>
        {
            (stage == 3).then_some("ZeRO-3's")
        }
        _ if job.simulated_offload().is_some() || job.ema.is_on_host() => None,
        _ => return Vec::new(),
    };
    let text = "the host's memory is what training keeps there; Python, data loaders and weights on their way to the GPU come on top";
    let on_host = Caveat::remark("host_memory", text);
    let of_loops = of_loops.filter(|_| training_loop(job) == TrainingLoop::Own);
    let unmeasured = of_loops.map(|whose| {
        let text = format!(
            "{whose} CPU offload was measured in a plain loop: under the Trainer the range allows a tenth of the peak"
        );
        Caveat::widening("offload_under_trainer", text, reserved / 10)
    });
    unmeasured.into_iter().chain([on_host]).collect()
}
