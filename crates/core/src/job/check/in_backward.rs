//! What an optimizer that steps in backward does not go with.

use crate::job::keys;
use crate::job::{Framework, JobError, JobSpec, Strategy};

use super::reasons::refuse_first;

const LEAVE: &str = "leave `optimizer_in_backward` out";
const OTHER: &str = "take another optimizer";

/// Refuses what needs all gradients at once, and loops that make an optimizer of their own.
pub(super) fn fits_in_backward(job: &JobSpec) -> Result<(), JobError> {
    if !job.optimizer_in_backward {
        return Ok(());
    }
    let is_known = job.task.name().has_labels() && job.model.is_in_transformers();
    let is_layerwise = job.optimizer.is_low_rank() && matches!(job.framework, Framework::Trainer | Framework::Trl);
    let is_alone = job.parallel.world_size <= 1 && matches!(job.parallel.strategy, Strategy::None);
    let refused = [
        (keys::TASK, !is_known, "it is simulated of transformers' models on labels", LEAVE),
        (
            keys::FRAMEWORK,
            job.framework != Framework::Loop && !is_layerwise,
            "of trainers' optimizers GaLore's and APOLLO's step there",
            "set framework = \"loop\"",
        ),
        (keys::WORLD_SIZE, !is_alone, "it is simulated on one GPU: a wrapper's own hooks are not told apart", LEAVE),
        (
            keys::CLIP_GRAD_NORM,
            job.clip_grad_norm.is_some() && !is_layerwise,
            "a norm is of all gradients, and they are gone",
            "set clip_grad_norm = 0",
        ),
        (
            keys::GRADIENT_ACCUMULATION_STEPS,
            job.gradient_accumulation_steps > 1,
            "each pass steps, nothing accumulates",
            "set gradient_accumulation_steps = 1",
        ),
        (
            keys::ZERO_GRAD_SET_TO_NONE,
            !job.zero_grad_set_to_none,
            "the hooks free their gradients",
            "set zero_grad_set_to_none = true",
        ),
        (
            keys::PRECISION,
            job.precision.scales_loss(),
            "a gradient scaler looks at all gradients first",
            "set precision = \"amp-bf16\"",
        ),
    ];
    refuse_first("`optimizer_in_backward`", keys::OPTIMIZER_IN_BACKWARD, refused)
}

/// Refuses LOMO where its own backward pass does not fit, or was not measured.
pub(super) fn fits_fused_backward(job: &JobSpec) -> Result<(), JobError> {
    if !job.optimizer.fuses_backward() || !job.task.trains() {
        return Ok(());
    }
    let is_known = job.task.name().has_labels() && job.model.is_in_transformers();
    let is_alone = job.parallel.world_size <= 1 && matches!(job.parallel.strategy, Strategy::None);
    let in_loop = job.framework == Framework::Loop;
    let refused = [
        (keys::TASK, !is_known, "it is simulated of transformers' models on labels", OTHER),
        (keys::WORLD_SIZE, !is_alone, "it is simulated on one GPU", OTHER),
        (keys::LORA_R, job.lora.is_some(), "it is simulated of weights that are trained whole", OTHER),
        (keys::OPTIMIZER_IN_BACKWARD, job.optimizer_in_backward, "it steps in backward by itself", LEAVE),
        (
            keys::CLIP_GRAD_NORM,
            in_loop && job.clip_grad_norm.is_some(),
            "its norm takes a backward pass before, which is not simulated",
            "set clip_grad_norm = 0",
        ),
        (
            keys::PRECISION,
            job.precision.scales_loss(),
            "a gradient scaler looks at all gradients first",
            "set precision = \"amp-bf16\"",
        ),
    ];
    refuse_first("`optimizer` = LOMO", keys::OPTIMIZER, refused)
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, keys};

    #[test]
    fn only_a_plain_loop_of_single_passes_steps_in_backward() {
        let source =
            || JobSource::model("gpt2").set("framework", "loop").set("seq_len", 64).set("optimizer_in_backward", true);
        assert!(source().resolve(&[]).is_ok());
        for (key, value) in [
            (keys::TASK, "generate"),
            (keys::FRAMEWORK, "trainer"),
            (keys::CLIP_GRAD_NORM, "1.0"),
            (keys::GRADIENT_ACCUMULATION_STEPS, "2"),
            (keys::ZERO_GRAD_SET_TO_NONE, "false"),
            (keys::PRECISION, "amp-fp16"),
            (keys::WORLD_SIZE, "2"),
        ] {
            let error = source().set(key, value).resolve(&[]).unwrap_err();
            assert!(error.keys.iter().any(|told| told == key), "{error}");
        }
    }

    #[test]
    fn lomo_steps_whole_weights_in_its_own_backward() {
        let source = || JobSource::model("gpt2").set("framework", "loop").set("seq_len", 64).set("optimizer", "lomo");
        assert!(source().resolve(&[]).is_ok());
        assert!(source().set("framework", "trainer").set("clip_grad_norm", 1.0).resolve(&[]).is_ok());
        for (key, value) in [
            (keys::CLIP_GRAD_NORM, "1.0"),
            (keys::LORA_R, "8"),
            (keys::OPTIMIZER_IN_BACKWARD, "true"),
            (keys::PRECISION, "amp-fp16"),
            (keys::WORLD_SIZE, "2"),
        ] {
            let error = source().set(key, value).resolve(&[]).unwrap_err();
            assert!(error.keys.iter().any(|told| told == key), "{error}");
        }
    }
}
