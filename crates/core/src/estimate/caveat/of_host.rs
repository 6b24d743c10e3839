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
    let averaged = job.ema.is_offloaded().then(|| {
        let text = "the average's pinned blocks of the step before may not be free when it goes back to the host, which then takes up to twice what is said";
        Caveat::remark("ema_on_host", text)
    });
    unmeasured.into_iter().chain([on_host]).chain(averaged).collect()
}

#[cfg(test)]
mod tests {
    use crate::estimate::estimate;
    use crate::job::JobSource;

    #[test]
    fn an_average_on_the_host_may_take_twice_its_blocks() {
        let caveats = |ema: &str| {
            let source = JobSource::model("stable-diffusion-v1-5").set("task", "diffusion").set("ema", ema);
            let caveats = estimate(&source.resolve(&[]).unwrap().job).unwrap().caveats;
            caveats.iter().filter(|caveat| caveat.code == "ema_on_host").count()
        };
        assert_eq!(["off", "ema_model", "ema_model_offload", "ema_model_foreach_offload"].map(caveats), [0, 0, 1, 1]);
    }
}
