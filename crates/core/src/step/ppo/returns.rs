//! From what was scored to advantages and returns, and what is logged of them when an update ends.

use crate::dtype::DType;
use crate::job::KlEstimator;
use crate::op::{ReduceKind, UNTOLD, arange, full, stack};
use crate::tensor::Tensor;

use super::Trainer;
use super::rollout::Rollout;
use crate::step::gathered::sum_all;

/// What rewards are made into; some of it lives on into the next update.
#[derive(Default)]
pub(super) struct Returns {
    contain_eos_token: Option<Tensor>,
    response_idxs: Option<Tensor>,
    pub padding_mask: Option<Tensor>,
    pub padding_mask_p1: Option<Tensor>,
    sequence_lengths_p1: Option<Tensor>,
    logr: Option<Tensor>,
    kl: Option<Tensor>,
    non_score_reward: Option<Tensor>,
    rewards: Option<Tensor>,
    actual: Option<[Tensor; 2]>,
    advantages_reversed: Vec<Tensor>,
    nextvalues: Option<Tensor>,
    delta: Option<Tensor>,
    lastgaelam: Option<Tensor>,
    pub advantages: Option<Tensor>,
    pub returns: Option<Tensor>,
    logged: Vec<Tensor>,
}

impl Rollout {
    /// What follows the rollout, up to the epochs.
    pub(super) fn compute_returns(&mut self, trainer: &Trainer) -> Option<()> {
        let _no_grad = trainer.context.set_grad_enabled(false);
        let of = &mut self.returns;
        of.contain_eos_token = Some({
            let is_eos = self.postprocessed_responses.as_ref()?.map("eq.Scalar", DType::Bool);
            is_eos.reduce_last("any.dim", ReduceKind::Any, DType::Bool)
        });
        let responses = self.responses.as_ref()?;
        let (rows, tokens) = (responses.size(0), responses.size(1));
        of.response_idxs = Some({
            let _places = arange(trainer.context, tokens);
            full(trainer.context, "repeat.default", &[rows, tokens], DType::Int64)
        });
        let behind = || full(trainer.context, "gt.Tensor", &[rows, tokens], DType::Bool);
        let padding_mask = behind();
        self.logprobs = Some(self.logprobs.as_ref()?.masked_fill(&padding_mask, UNTOLD));
        self.ref_logprobs = Some(self.ref_logprobs.as_ref()?.masked_fill(&padding_mask, UNTOLD));
        of.padding_mask = Some(padding_mask);
        of.sequence_lengths_p1 = Some(self.sequence_lengths.as_ref()?.map("add.Tensor", DType::Int64));
        let padding_mask_p1 = behind();
        self.values = Some(self.values.as_ref()?.masked_fill(&padding_mask_p1, 0.0));
        of.padding_mask_p1 = Some(padding_mask_p1);
        let logr = self.ref_logprobs.as_ref()? - self.logprobs.as_ref()?;
        let kl = match trainer.spec.kl_estimator {
            KlEstimator::K1 => logr.neg(),
            KlEstimator::K3 => {
                let mut shifted = logr.exp();
                shifted = shifted.sub_scalar(1.0);
                &shifted - &logr
            }
        };
        of.logr = Some(logr);
        of.non_score_reward = Some(kl.mul_scalar(UNTOLD));
        of.kl = Some(kl);
        of.rewards = Some(of.non_score_reward.as_ref()?.unary("clone.default", DType::Float32));
        of.add_scores(trainer, rows);
        if trainer.spec.whiten_rewards {
            of.whiten_rewards()?;
        }
        of.compute_advantages(self.values.as_ref()?, tokens)
    }

    /// What is logged, and printed.
    pub(super) fn log(&mut self, trainer: &Trainer) -> Option<()> {
        let _no_grad = trainer.context.set_grad_enabled(false);
        let of = &mut self.returns;
        let mean = |x: &Tensor| x.reduce_all("mean.default", ReduceKind::Mean, x.dtype());
        let sums = |x: &Tensor| x.reduce_last("sum.dim_IntList", ReduceKind::Sum, x.dtype());
        let mean_kl = mean(&sums(of.kl.as_ref()?));
        let mean_entropy = {
            let unmasked = {
                let negated = self.logprobs.as_ref()?.neg();
                let kept = {
                    let is_answer = of.padding_mask.as_ref()?.map("bitwise_not.default", DType::Bool);
                    is_answer.map("_to_copy.default", DType::Float32)
                };
                &negated * &kept
            };
            let entropies = sums(&unmasked);
            drop(unmasked);
            mean(&entropies)
        };
        let mean_non_score_reward = mean(&sums(of.non_score_reward.as_ref()?));
        let rlhf_reward = {
            let score = mean(self.scores.as_ref()?);
            &mean_non_score_reward + &score
        };
        let all = [mean_kl, mean_entropy, mean_non_score_reward, rlhf_reward];
        all.iter().for_each(|x| drop(mean(x)));
        drop(mean(&mean(self.scores.as_ref()?)));
        // The means of what was noted of every micro-batch, and a variance.
        (0..8).for_each(|_| drop(full(trainer.context, "mean.default", &[], DType::Float32)));
        let is_eos = self.responses.as_ref()?.map("eq.Scalar", DType::Bool);
        sum_all(&is_eos);
        of.logged = all.into();
        Some(())
    }

    /// What is deleted when an update ends.
    pub(super) fn end_update(&mut self) {
        self.query_responses = None;
        (self.responses, self.postprocessed_responses) = (None, None);
        (self.logprobs, self.ref_logprobs, self.values) = (None, None, None);
        (self.sequence_lengths, self.scores) = (None, None);
        let Returns { logr, advantages_reversed, nextvalues, delta, lastgaelam, logged, .. } =
            std::mem::take(&mut self.returns);
        // `rlhf_reward` is not.
        let logged = logged.into_iter().skip(3).collect();
        self.returns =
            Returns { logr, advantages_reversed, nextvalues, delta, lastgaelam, logged, ..Returns::default() };
    }
}

impl Returns {
    /// `rewards[actual_start, actual_end] += scores`
    fn add_scores(&mut self, trainer: &Trainer, rows: u64) {
        let actual_start = arange(trainer.context, rows);
        let actual_end = {
            let _is_within = full(trainer.context, "lt.Scalar", &[rows], DType::Bool);
            full(trainer.context, "where.self", &[rows], DType::Int64)
        };
        self.actual = Some([actual_start, actual_end]);
        drop(full(trainer.context, "index.Tensor", &[rows], DType::Float32));
    }

    fn whiten_rewards(&mut self) -> Option<()> {
        let is_answer = self.padding_mask_p1.as_ref()?.map("bitwise_not.default", DType::Bool);
        self.rewards = Some(masked_whiten(self.rewards.as_ref()?, is_answer));
        self.rewards = Some(self.rewards.as_ref()?.masked_fill(self.padding_mask_p1.as_ref()?, 0.0));
        Some(())
    }

    /// Token by token from the last to the first.
    fn compute_advantages(&mut self, values: &Tensor, tokens: u64) -> Option<()> {
        self.advantages_reversed = Vec::new();
        self.lastgaelam = None;
        let rewards = self.rewards.clone()?;
        let column = |x: &Tensor| x.narrow_any(1, 1).squeeze(1);
        for at in 0..tokens {
            let reward = column(&rewards);
            self.nextvalues = (at > 0).then(|| column(values));
            let sum = match &self.nextvalues {
                Some(next) => {
                    let discounted = next.mul_scalar(UNTOLD);
                    &reward + &discounted
                }
                None => reward.add_scalar(0.0),
            };
            self.delta = Some(&sum - &column(values));
            drop(sum);
            let delta = self.delta.as_ref()?;
            let next = match &self.lastgaelam {
                Some(last) => {
                    let discounted = last.mul_scalar(UNTOLD);
                    delta + &discounted
                }
                None => delta.add_scalar(0.0),
            };
            self.advantages_reversed.push(next.clone());
            self.lastgaelam = Some(next);
        }
        let advantages = stack(&self.advantages_reversed)?;
        self.returns = Some(full(advantages.context(), "add.Tensor", values.sizes(), advantages.dtype()));
        let is_answer = self.padding_mask.as_ref()?.map("bitwise_not.default", DType::Bool);
        let whitened = masked_whiten(&full_like(&advantages, values), is_answer);
        drop(advantages);
        self.advantages = Some(whitened.masked_fill(self.padding_mask.as_ref()?, 0.0));
        Some(())
    }
}

/// The same memory with other sizes.
fn full_like(x: &Tensor, sizes_of: &Tensor) -> Tensor {
    x.view(sizes_of.sizes())
}

/// `(values * mask).sum() / mask.sum()`
pub(super) fn masked_mean(values: &Tensor, mask: &Tensor) -> Tensor {
    let sum = {
        let masked = values.mul(mask);
        masked.sum()
    };
    let count = sum_all(mask);
    sum.div_by(&count)
}

fn masked_var(values: &Tensor, mask: &Tensor) -> Tensor {
    let mean = masked_mean(values, mask);
    let centered_values = values - &mean;
    let variance = masked_mean(&centered_values.map("pow.Tensor_Scalar", values.dtype()), mask);
    let mask_sum = sum_all(mask);
    drop(mask_sum.map("eq.Scalar", DType::Bool));
    let bessel_correction = {
        let less = mask_sum.map("sub.Tensor", DType::Int64);
        mask_sum.binary("div.Tensor", &less, DType::Float32)
    };
    &variance * &bessel_correction
}

/// `masked_whiten(values, mask)`; the mask goes when it is done.
fn masked_whiten(values: &Tensor, mask: Tensor) -> Tensor {
    let mean = masked_mean(values, &mask);
    let variance = masked_var(values, &mask);
    let whitened = {
        let centered = values - &mean;
        let scale = {
            let positive = variance.add_scalar(UNTOLD);
            positive.map("rsqrt.default", positive.dtype())
        };
        &centered * &scale
    };
    drop((mask, mean, variance));
    whitened
}
