//! What a colocated vLLM engine asks of the trainer's own allocator (trl 1.16, generation/vllm_generation.py and
//! trainer/grpo_trainer.py); what the engine itself holds is counted by `estimate`.

use crate::dtype::DType;
use crate::job::Rollout;
use crate::op::{ReduceKind, UNTOLD, full};
use crate::tensor::{Shape, Tensor};
use crate::trace::PhaseKind;

use super::statistics::log_reduced;
use super::trainer::Trainer;

/// `vllm_importance_sampling_correction`: the ratio, and the variables of `_generate_and_score_completions` it came by.
pub(super) struct Correction {
    pub importance_sampling_ratio: Tensor,
    #[expect(dead_code, reason = "Python's variables hold them until the function returns")]
    variables: [Tensor; 3],
}

impl Trainer<'_> {
    /// Whether an engine in this process generates.
    pub(super) const fn uses_vllm(&self) -> bool {
        matches!(self.spec.rollout, Rollout::Vllm { .. })
    }

    /// `sync_weights`: once an optimizer step, or before every generation where sleep has discarded the weights.
    /// Parameters are copied one by one into those the engine has.
    pub(super) fn sync_weights(&self, sleep_mode: bool, pass: u64) {
        if sleep_mode {
            self.context.empty_cache();
        }
        self.context.phase(PhaseKind::Generate);
        let global_step = pass / self.job.gradient_accumulation_steps.max(1);
        let last_loaded_step = self.last_loaded_step.replace(Some(global_step));
        if sleep_mode || last_loaded_step != Some(global_step) {
            self.merge_adapter();
        }
    }

    /// peft's `merge_adapter()`, and `unmerge_adapter()` once the weights are read (peft 0.21, tuners/lora/layer.py).
    fn merge_adapter(&self) {
        let _no_grad = self.context.set_grad_enabled(false);
        for layer in self.adapters.chunks_exact(2) {
            drop(get_delta_weight(layer));
        }
        for layer in self.adapters.chunks_exact(2) {
            let delta_weight = get_delta_weight(layer);
            delta_weight.iter().for_each(|delta| drop(delta.to(self.job.precision.weight_dtype())));
        }
    }

    /// The ratio of what the policy and the engine find likely, by sequence (`sequence_mask`).
    pub(super) fn importance_sampling(&self, old: &Tensor, sampling: &Tensor, mask: &Tensor) -> Correction {
        let mut per_token_logps_diff = {
            let difference = old.binary("sub.Tensor", sampling, DType::Float32);
            difference.binary("mul.Tensor", mask, DType::Float32)
        };
        per_token_logps_diff = per_token_logps_diff.unary("nan_to_num.default", DType::Float32);
        let logps_diff = {
            let sums = per_token_logps_diff.reduce_last("sum.dim_IntList", ReduceKind::Sum, DType::Float32);
            sums.unsqueeze(1)
        };
        let mut importance_sampling_ratio = logps_diff.unary("exp.default", DType::Float32);
        let invalid_mis_mask = {
            let below = importance_sampling_ratio.map("lt.Scalar", DType::Bool);
            let above = importance_sampling_ratio.map("gt.Scalar", DType::Bool);
            below.binary("bitwise_or.Tensor", &above, DType::Bool)
        };
        importance_sampling_ratio = importance_sampling_ratio.unary("masked_fill.Scalar", DType::Float32);
        Correction { importance_sampling_ratio, variables: [per_token_logps_diff, logps_diff, invalid_mis_mask] }
    }

    /// What is logged of the difference and the ratio.
    pub(super) fn log_importance_sampling(&self, old: &Tensor, sampling: &Tensor, mask: &Tensor, ratio: &Tensor) {
        let mut delta = {
            let difference = old.binary("sub.Tensor", sampling, DType::Float32);
            difference.unary("abs.default", DType::Float32)
        };
        let mask = mask.to(DType::Bool);
        delta = {
            let is_scored = {
                let is_number = {
                    let is_nan = delta.map("ne.Tensor", DType::Bool);
                    is_nan.map("bitwise_not.default", DType::Bool)
                };
                mask.binary("bitwise_and.Tensor", &is_number, DType::Bool)
            };
            let _places = full(self.context, "nonzero.default", &[is_scored.numel(), 2], DType::Int64);
            Tensor::empty(self.context, "index.Tensor", Shape::new(&[is_scored.numel()]), DType::Float32)
        };
        log_reduced(&delta, "mean.default", ReduceKind::Mean);
        log_reduced(&delta, "max.default", ReduceKind::WholeMax);
        for op in ["min.default", "mean.default", "max.default"] {
            log_reduced(ratio, op, ReduceKind::WholeMax);
        }
    }
}

/// `weight_B @ weight_A * scaling`
fn get_delta_weight(layer: &[Tensor]) -> Option<Tensor> {
    let [down, up] = layer else { return None };
    let product = up.mm(down);
    Some(product.mul_scalar(UNTOLD))
}
