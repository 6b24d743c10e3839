//! What TRL's preference trainers make of answers' log-probabilities, and what they log (trl 1.16).

use crate::dtype::DType;
use crate::op::ReduceKind;
use crate::tensor::Tensor;

use super::gathered::{Processes, sum_all};

/// `input_ids.masked_fill(completion_mask == 0, -100)`
pub(super) fn completion_labels(input_ids: &Tensor, completion_mask: &Tensor) -> Tensor {
    let _is_prompt = completion_mask.map("eq.Scalar", DType::Bool);
    input_ids.unary("masked_fill.Scalar", DType::Int64)
}

/// `per_token_logps.sum(dim=1)` of all positions
pub(super) fn sequence_logps(log_probs: &Tensor) -> Tensor {
    log_probs.slice_any(1, log_probs.size(1)).sum_rows()
}

/// `x.mean().item()`
pub(super) fn log_mean(x: &Tensor) {
    x.reduce_all("mean.default", ReduceKind::Mean, x.dtype());
}

/// The mean logits of each kind of answers, of whose tokens the masks select `completion_len` a row.
pub(super) fn log_mean_logits(processes: Processes, mean_logits: &[Tensor], masks: &[Tensor], completion_len: u64) {
    let mut totals = Vec::new();
    for (logits, mask) in mean_logits.iter().zip(masks) {
        let selected = {
            let mask = mask.map("_to_copy.default", DType::Bool);
            logits.masked_rows(&mask, logits.size(0) * completion_len)
        };
        totals.push(sum_all(&selected));
        drop(selected);
        totals.push(sum_all(mask));
    }
    for value in totals {
        processes.sum_of_all(value.clone());
    }
}
