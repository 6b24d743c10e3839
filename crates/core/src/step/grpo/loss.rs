//! `_compute_loss` (trl 1.16, trainer/grpo_trainer.py) with the `dapo` loss, TRL's default, and what it logs.

use crate::dtype::DType;
use crate::op::{ReduceKind, UNTOLD, cat};
use crate::tensor::Tensor;

use super::batch::Batch;
use super::logps::{Logps, LogpsCall};
use super::statistics::{log_masked_mean, masked_seq_mean};
use super::trainer::Trainer;
use crate::step::fused_head::{RouterCall, log_router_loss};
use crate::step::gathered::Processes;

/// `compute_loss(model, inputs)`
pub(super) fn compute_loss(trainer: &Trainer, inputs: &Batch) -> Option<Tensor> {
    let input_ids = cat(&[&inputs.prompt_ids, &inputs.completion_ids], 1);
    let attention_mask = cat(&[&inputs.prompt_mask, &inputs.completion_mask], 1);
    let logits_to_keep = inputs.completion_ids.size(1);
    let mask = &inputs.completion_mask;
    let call = LogpsCall {
        input_ids: &input_ids,
        attention_mask: &attention_mask,
        logits_to_keep,
        batch_size: None,
        entropy: true,
        own_positions: trainer.makes_positions(),
        router: RouterCall::WeightedOrOutput,
    };
    let logps = trainer.per_token_logps(&trainer.wrapped, &call)?;
    let Logps { per_token: per_token_logps, entropies, aux_loss } = logps;
    let advantages = inputs.advantages.unsqueeze(1);
    let old_per_token_logps = inputs.old_per_token_logps.clone().unwrap_or_else(|| per_token_logps.detach());
    let log_ratio = &per_token_logps - &old_per_token_logps;
    let coef_1 = log_ratio.exp();
    // `use_bias_correction_kl`, on by default, weighs the divergence by the ratio.
    let per_token_kl = inputs.ref_per_token_logps.as_ref().map(|reference| {
        let per_token_kl = kl_divergence(reference, &per_token_logps);
        &per_token_kl * &coef_1
    });
    let coef_2 = coef_1.clamp();
    let per_token_loss1 = &coef_1 * &advantages;
    let per_token_loss2 = &coef_2 * &advantages;
    let mut per_token_loss = {
        let smaller = per_token_loss1.minimum(&per_token_loss2);
        smaller.neg()
    };
    if let Some(ratio) = &inputs.importance_sampling_ratio {
        per_token_loss = &per_token_loss * ratio;
    }
    if let Some(per_token_kl) = &per_token_kl {
        let weighted = per_token_kl.mul_scalar(UNTOLD);
        per_token_loss = &per_token_loss + &weighted;
    }
    let normalizer = loss_normalizer(inputs.num_items_in_batch.as_ref()?);
    let mut loss = {
        let sum = {
            let masked = &per_token_loss * mask;
            masked.sum()
        };
        sum.div_by(&normalizer)
    };
    if let Some(aux_loss) = &aux_loss {
        loss = add_router_loss(&loss, aux_loss, trainer.processes);
    }
    if let Some(per_token_kl) = &per_token_kl {
        log_masked_mean(per_token_kl, mask);
    }
    if let Some(entropies) = &entropies {
        log_masked_mean(entropies, mask);
    }
    log_clipping(trainer.processes, &coef_1, &advantages, mask);
    Some(loss)
}

/// `loss + self.router_aux_loss_coef * aux_loss / normalizer`, and what is logged of it.
fn add_router_loss(loss: &Tensor, aux_loss: &Tensor, processes: Processes) -> Tensor {
    let sum = {
        let weighted = aux_loss.mul_scalar(UNTOLD);
        loss + &weighted.div_scalar(UNTOLD)
    };
    log_router_loss(aux_loss, processes);
    sum
}

/// `exp(reference - policy) - (reference - policy) - 1`
fn kl_divergence(reference: &Tensor, policy: &Tensor) -> Tensor {
    let difference = {
        let ratio = {
            let log_ratio = reference - policy;
            log_ratio.exp()
        };
        let log_ratio = reference - policy;
        &ratio - &log_ratio
    };
    difference.add_scalar(-1.0)
}

/// `num_items.clamp(min=1.0) / processes * gradient_accumulation_steps / steps_per_generation`
fn loss_normalizer(num_items_in_batch: &Tensor) -> Tensor {
    let mut normalizer = {
        let clamped = {
            let items = num_items_in_batch.to(DType::Float32);
            items.unary("clamp.default", DType::Float32)
        };
        clamped.unary("div.Tensor", DType::Float32)
    };
    normalizer = {
        let accumulated = normalizer.unary("mul.Tensor", DType::Float32);
        accumulated.unary("div.Tensor", DType::Float32)
    };
    normalizer
}

/// Whether ratios are clipped from below, from above, and whether they are.
pub(super) fn clipped_ratios(coef_1: &Tensor, advantages: &Tensor) -> [Tensor; 3] {
    let clipped = |ratio: &'static str, advantage: &'static str| {
        let beyond = coef_1.map(ratio, DType::Bool);
        let signed = advantages.map(advantage, DType::Bool);
        beyond.binary("bitwise_and.Tensor", &signed, DType::Bool)
    };
    let is_low_clipped = clipped("lt.Scalar", "lt.Scalar");
    let is_high_clipped = clipped("gt.Scalar", "gt.Scalar");
    let is_region_clipped = is_low_clipped.binary("bitwise_or.Tensor", &is_high_clipped, DType::Bool);
    [is_low_clipped, is_high_clipped, is_region_clipped]
}

/// The shares of clipped ratios.
fn log_clipping(processes: Processes, coef_1: &Tensor, advantages: &Tensor, mask: &Tensor) {
    let [is_low_clipped, is_high_clipped, is_region_clipped] = clipped_ratios(coef_1, advantages);
    for is_clipped in [&is_low_clipped, &is_high_clipped, &is_region_clipped] {
        log_masked_mean(&is_clipped.to(DType::Float32), mask);
    }
    let gathered = |is_clipped: &Tensor| {
        let means = masked_seq_mean(&is_clipped.to(DType::Float32), mask);
        processes.gather(&means)
    };
    let gathered_low_clip = gathered(&is_low_clipped);
    gathered_low_clip.reduce_all("min.default", ReduceKind::WholeMax, DType::Float32);
    let gathered_high_clip = gathered(&is_high_clipped);
    gathered_high_clip.reduce_all("max.default", ReduceKind::WholeMax, DType::Float32);
}
