//! What an average of the weights does not go with.

use crate::job::keys;
use crate::job::{Framework, JobError, JobSpec, Strategy, Task};

use super::reasons::refuse_first;

const LEAVE: &str = "leave `ema` out";

/// Refuses averages where no loop was measured with them.
pub(super) fn check_ema(job: &JobSpec) -> Result<(), JobError> {
    if !job.ema.is_on() {
        return Ok(());
    }
    let is_diffusion = matches!(job.task, Task::Diffusion(_));
    let is_alone = job.parallel.world_size <= 1 && matches!(job.parallel.strategy, Strategy::None);
    let is_known = is_diffusion || (job.task.name().has_labels() && job.model.is_in_transformers());
    let is_in_loop = is_diffusion || job.framework == Framework::Loop;
    let refused = [
        (keys::TASK, !is_known, "it is simulated where transformers' models train on labels, and in diffusion", LEAVE),
        (keys::FRAMEWORK, !is_in_loop, "no trainer keeps one by itself", "set framework = \"loop\""),
        (keys::WORLD_SIZE, !is_alone, "it is simulated on one GPU", LEAVE),
        (keys::LORA_R, job.lora.is_some(), "it is simulated of weights that are trained whole", LEAVE),
        (
            keys::TASK,
            is_diffusion && !job.ema.is_ema_model(),
            "diffusers' examples have an EMAModel",
            "set ema = \"ema_model\"",
        ),
        (
            keys::TASK,
            !is_diffusion && job.ema.is_offloaded(),
            "diffusers' examples alone offload theirs",
            "set ema = \"averaged_model_cpu\"",
        ),
    ];
    refuse_first("`ema`", keys::EMA, refused)
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn only_loops_of_whole_weights_keep_an_average() {
        let source = || JobSource::model("gpt2").set("framework", "loop").set("seq_len", 64);
        assert!(source().set("ema", "averaged_model").resolve(&[]).is_ok());
        for (key, value, ema) in [
            (keys::TASK, "generate", "averaged_model"),
            (keys::FRAMEWORK, "trainer", "averaged_model"),
            (keys::LORA_R, "8", "ema_model"),
            (keys::WORLD_SIZE, "2", "averaged_model_cpu"),
            (keys::TASK, "causal_lm", "ema_model_offload"),
        ] {
            let error = source().set("ema", ema).set(key, value).resolve(&[]).unwrap_err();
            assert!(error.keys.iter().any(|told| told == key), "{error}");
        }
    }
}
