//! `_compute_loss` (trl 1.16, trainer/grpo_trainer.py): clipped ratios times advantages, and the divergence from a reference.

use tonnage_core::job::LossType;

use crate::error::TrainError;
use crate::tensor::{Context, Tensor, caught};

/// What a loss goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossTerms {
    /// How the losses of tokens become one.
    pub loss_type: LossType,
    /// How far a ratio may fall below 1.
    pub epsilon: f64,
    /// How far it may rise above 1.
    pub epsilon_high: f64,
    /// Weight of the divergence.
    pub beta: f64,
    /// Passes of a step.
    pub accumulation: u64,
    /// Micro-batches generated at once.
    pub steps_per_generation: u64,
    /// Tokens of a completion, for `dr_grpo`.
    pub completion_len: u64,
}

/// What the loss is made of, [rows, tokens] each.
pub(super) struct Tokens<'a> {
    pub logps: &'a Tensor,
    /// Before this generation batch was trained on; where they are the same, `None`.
    pub old_logps: Option<&'a Tensor>,
    pub reference: Option<&'a Tensor>,
    /// [rows]
    pub advantages: &'a Tensor,
    pub mask: &'a Tensor,
    /// Of the whole generation batch.
    pub num_items: &'a Tensor,
}

/// A loss, and what is logged of it.
pub(super) struct Loss {
    pub loss: Tensor,
    pub kl: Option<Tensor>,
    /// Whether ratios were clipped, by token.
    pub is_clipped: Tensor,
}

/// The loss of tensors, as TRL computes it: `logps` and its relatives are `[rows, tokens]`, advantages `[rows]`, the mask 1 where a token
/// counts, `num_items` the tokens that count in the whole generation batch.
///
/// # Errors
/// PyTorch's, where sizes do not go together.
pub fn grpo_loss(
    terms: &LossTerms,
    logps: &tonnage_torch::Tensor,
    old_and_reference: [Option<&tonnage_torch::Tensor>; 2],
    [advantages, mask, num_items]: [&tonnage_torch::Tensor; 3],
) -> Result<tonnage_torch::Tensor, TrainError> {
    let context = Context::new(logps.torch(), logps.device());
    let here = |tensor: &tonnage_torch::Tensor| Tensor::of(&context, tensor.clone());
    caught(|| {
        let [old, reference] = old_and_reference.map(|tensor| tensor.map(here));
        let tokens = Tokens {
            logps: &here(logps),
            old_logps: old.as_ref(),
            reference: reference.as_ref(),
            advantages: &here(advantages),
            mask: &here(mask),
            num_items: &here(num_items),
        };
        loss_of(terms, &tokens).loss.inner().clone()
    })
}

pub(super) fn loss_of(terms: &LossTerms, tokens: &Tokens<'_>) -> Loss {
    let Tokens { logps: per_token_logps, mask, .. } = *tokens;
    let advantages = tokens.advantages.unsqueeze(1);
    let old_per_token_logps = tokens.old_logps.cloned().unwrap_or_else(|| per_token_logps.detached());
    let log_ratio = per_token_logps - &old_per_token_logps;
    let coef_1 = log_ratio.exp();
    // `use_bias_correction_kl`, on by default, weighs the divergence by the ratio.
    let per_token_kl = tokens.reference.map(|reference| {
        let per_token_kl = kl_divergence(reference, per_token_logps);
        &per_token_kl * &coef_1
    });
    let coef_2 = coef_1.clamp_to(Some(1.0 - terms.epsilon), Some(1.0 + terms.epsilon_high));
    let per_token_loss1 = &coef_1 * &advantages;
    let per_token_loss2 = &coef_2 * &advantages;
    let mut per_token_loss = {
        let smaller = per_token_loss1.minimum_of(&per_token_loss2);
        smaller.neg()
    };
    if let Some(per_token_kl) = &per_token_kl {
        let weighted = per_token_kl.mul_scalar(terms.beta);
        per_token_loss = &per_token_loss + &weighted;
    }
    let loss = one_loss(terms, &per_token_loss, mask, tokens.num_items);
    let is_clipped = clipped(terms, &coef_1, &advantages);
    Loss { loss, kl: per_token_kl, is_clipped }
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

/// One number of the losses of tokens, divided so that the passes of a step add up to its loss.
fn one_loss(terms: &LossTerms, per_token_loss: &Tensor, mask: &Tensor, num_items: &Tensor) -> Tensor {
    let passes = terms.accumulation.max(1) as f64;
    match terms.loss_type {
        LossType::Dapo => {
            let normalizer = {
                let one_process = num_items.clamp_to(Some(1.0), None).div_scalar(1.0);
                one_process.mul_scalar(passes).div_scalar(terms.steps_per_generation.max(1) as f64)
            };
            let sum = {
                let masked = per_token_loss * mask;
                masked.sum_all()
            };
            sum.div_by(&normalizer)
        }
        LossType::Grpo => {
            let sums = (per_token_loss * mask).sum_over_last();
            let counts = mask.sum_over_last().clamp_to(Some(1.0), None);
            sums.div_by(&counts).mean_all().div_scalar(passes)
        }
        LossType::Bnpo => {
            let sum = (per_token_loss * mask).sum_all();
            sum.div_by(&mask.sum_all().clamp_to(Some(1.0), None)).div_scalar(passes)
        }
        LossType::DrGrpo => {
            let sum = (per_token_loss * mask).sum_all();
            let constant = per_token_loss.size(0).saturating_mul(terms.completion_len).max(1);
            sum.div_scalar(constant as f64).div_scalar(passes)
        }
    }
}

/// `is_low_clipped | is_high_clipped`
fn clipped(terms: &LossTerms, coef_1: &Tensor, advantages: &Tensor) -> Tensor {
    let _no_grad = coef_1.context().set_grad_enabled(false);
    let low = coef_1.lt_number(1.0 - terms.epsilon).bitwise_and(&advantages.lt_number(0.0));
    let high = coef_1.gt_number(1.0 + terms.epsilon_high).bitwise_and(&advantages.gt_number(0.0));
    low.bitwise_or(&high)
}
