//! What is measured of an optimizer and not equal.

use super::Caveat;
use crate::dtype::DType;
use crate::job::{JobSpec, OptimizerKind};

/// transformers' own Adafactor on bf16 weights: measured up to 0.1 % above what is simulated (docs/accuracy.md), of which the
/// range allows twice as much.
pub(super) fn adafactor_of_bf16(job: &JobSpec, reserved: u64) -> Option<Caveat> {
    let is_it = job.optimizer == OptimizerKind::TransformersAdafactor && job.task.trains();
    (is_it && job.lora.is_none() && job.precision.weight_dtype() == DType::Bfloat16).then(|| {
        let text = "transformers' Adafactor on bf16 weights was measured up to 0.1 % above what is simulated: the range allows a \
                    five-hundredth of the peak";
        Caveat::adding("adafactor_of_bf16", text, reserved / 500)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobSource;

    #[test]
    fn only_bf16_weights_have_a_range() {
        let widens = |precision: &str, optimizer: &str| {
            let source = JobSource::model("gpt2").set("precision", precision).set("optimizer", optimizer);
            adafactor_of_bf16(&source.resolve(&[]).unwrap().job, 1000).map(|caveat| caveat.widens_bytes)
        };
        assert_eq!(widens("bf16", "transformers_adafactor"), Some(2));
        assert_eq!(widens("bf16-amp", "transformers_adafactor"), Some(2));
        assert_eq!(widens("fp32", "transformers_adafactor"), None);
        assert_eq!(widens("bf16", "adamw"), None);
    }
}
