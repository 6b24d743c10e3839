//! The loss of a micro-batch; its variables live until the next one's take their place, or the mini-batch ends.

use crate::dtype::DType;
use crate::op::{ReduceKind, UNTOLD, full};
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

use super::returns::masked_mean;
use super::rollout::{Rollout, selective_log_softmax};
use super::{Output, Trainer};

/// Python's variables of a micro-batch.
#[derive(Default)]
pub(super) struct Variables {
    mb_advantage: Option<Tensor>,
    mb_responses: Option<Tensor>,
    mb_query_responses: Option<Tensor>,
    mb_logprobs: Option<Tensor>,
    mb_return: Option<Tensor>,
    mb_values: Option<Tensor>,
    output: Option<Output>,
    vpred_temp: Option<Tensor>,
    logits: Option<Tensor>,
    new_logprobs: Option<Tensor>,
    vpred: Option<Tensor>,
    vpredclipped: Option<Tensor>,
    vf_losses: [Option<Tensor>; 2],
    /// It is not deleted with the others.
    pub vf_loss_max: Option<Tensor>,
    vf_loss: Option<Tensor>,
    vf_clipfrac: Option<Tensor>,
    logprobs_diff: Option<Tensor>,
    ratio: Option<Tensor>,
    pg_losses: [Option<Tensor>; 2],
    pg_loss_max: Option<Tensor>,
    pg_loss: Option<Tensor>,
    loss: Option<Tensor>,
    pg_clipfrac: Option<Tensor>,
    prob_dist: Option<Tensor>,
    entropy: Option<Tensor>,
    approxkl: Option<Tensor>,
}

/// `x[micro_batch_inds]`, whose indices come from the host.
fn pick(trainer: &Trainer, x: Option<&Tensor>) -> Option<Tensor> {
    let (x, rows) = (x?, trainer.job.micro_batch_size);
    let _indices = full(trainer.context, "_to_copy.default", &[rows], DType::Int64);
    Some(full(trainer.context, "index.Tensor", &x.sizes().with(0, rows), x.dtype()))
}

/// Where the mask of the micro-batch's rows is off (`~mask[micro_batch_inds]`).
fn pick_others(trainer: &Trainer, mask: Option<&Tensor>) -> Option<Tensor> {
    Some(pick(trainer, mask)?.map("bitwise_not.default", DType::Bool))
}

impl Variables {
    /// From the rows to the loss.
    pub(super) fn compute_loss(&mut self, trainer: &Trainer, rollout: &Rollout) -> Option<Tensor> {
        let of = &rollout.returns;
        self.mb_advantage = pick(trainer, of.advantages.as_ref());
        self.mb_responses = pick(trainer, rollout.responses.as_ref());
        self.mb_query_responses = pick(trainer, rollout.query_responses.as_ref());
        self.mb_logprobs = pick(trainer, rollout.logprobs.as_ref());
        self.mb_return = pick(trainer, of.returns.as_ref());
        self.mb_values = pick(trainer, rollout.values.as_ref());
        trainer.context.phase(PhaseKind::Forward);
        self.call_models(trainer)?;
        self.value_loss(trainer, rollout)?;
        self.policy_loss(trainer, rollout)?;
        let weighted = self.vf_loss.as_ref()?.mul_scalar(UNTOLD);
        self.loss = Some(self.pg_loss.as_ref()? + &weighted);
        drop(weighted);
        trainer.context.phase(PhaseKind::Between);
        self.loss.clone()
    }

    /// `forward(model, mb_query_responses, pad_token_id)` of both models in their wrapper.
    fn call_models(&mut self, trainer: &Trainer) -> Option<()> {
        let asked = trainer.ask(self.mb_query_responses.as_ref()?);
        let critic = trainer.value.score(&asked, true);
        let output = asked.output(trainer.policy.as_ref(), &trainer.mode);
        let scores = critic.scores.clone();
        drop((critic, asked));
        self.output = Some(output);
        self.vpred_temp = Some(scores);
        Some(())
    }

    fn value_loss(&mut self, trainer: &Trainer, rollout: &Rollout) -> Option<()> {
        let (of, length) = (&rollout.returns, trainer.spec.response_length);
        let logits = self.output.as_ref()?.output.logits.as_ref()?.divide_slice_in_place(1, length);
        self.logits = Some(logits);
        self.new_logprobs = Some(selective_log_softmax(self.logits.as_ref()?, self.mb_responses.as_ref()?)?);
        self.new_logprobs = {
            let padding = pick(trainer, of.padding_mask.as_ref())?;
            Some(self.new_logprobs.as_ref()?.masked_fill(&padding, UNTOLD))
        };
        self.vpred = Some(self.vpred_temp.as_ref()?.slice_any(1, length).squeeze(2));
        self.vpred = {
            let padding = pick(trainer, of.padding_mask_p1.as_ref())?;
            Some(self.vpred.as_ref()?.masked_fill(&padding, 0.0))
        };
        let (vpred, mb_values, mb_return) = (self.vpred.clone()?, self.mb_values.clone()?, self.mb_return.clone()?);
        self.vpredclipped = {
            let least = mb_values.map("sub.Tensor", mb_values.dtype());
            let most = mb_values.map("add.Tensor", mb_values.dtype());
            Some(vpred.clamp_between(&least, &most))
        };
        let square = |prediction: &Tensor| {
            let difference = prediction - &mb_return;
            difference.pow_scalar(2.0)
        };
        self.vf_losses[0] = Some(square(&vpred));
        self.vf_losses[1] = Some(square(self.vpredclipped.as_ref()?));
        let [Some(losses1), Some(losses2)] = &self.vf_losses else { return None };
        self.vf_loss_max = Some(losses1.maximum(losses2));
        self.vf_loss = {
            let mean = {
                let others = pick_others(trainer, of.padding_mask_p1.as_ref())?;
                masked_mean(self.vf_loss_max.as_ref()?, &others)
            };
            Some(mean.mul_scalar(0.5))
        };
        self.vf_clipfrac = Some(clipped_share(trainer, [losses2, losses1], of.padding_mask_p1.as_ref())?);
        Some(())
    }

    fn policy_loss(&mut self, trainer: &Trainer, rollout: &Rollout) -> Option<()> {
        self.logprobs_diff = Some(self.new_logprobs.as_ref()? - self.mb_logprobs.as_ref()?);
        self.ratio = Some(self.logprobs_diff.as_ref()?.exp());
        let (ratio, mb_advantage) = (self.ratio.clone()?, self.mb_advantage.clone()?);
        self.pg_losses[0] = Some(mb_advantage.neg().mul(&ratio));
        self.pg_losses[1] = {
            let negated = mb_advantage.neg();
            let clamped = ratio.clamp();
            Some(negated.mul(&clamped))
        };
        let [Some(losses1), Some(losses2)] = &self.pg_losses else { return None };
        self.pg_loss_max = Some(losses1.maximum(losses2));
        let others = pick_others(trainer, rollout.returns.padding_mask.as_ref())?;
        self.pg_loss = Some(masked_mean(self.pg_loss_max.as_ref()?, &others));
        Some(())
    }

    /// What is noted of a micro-batch after its backward pass.
    pub(super) fn log(&mut self, trainer: &Trainer, rollout: &Rollout) -> Option<()> {
        let _no_grad = trainer.context.set_grad_enabled(false);
        let [Some(losses1), Some(losses2)] = &self.pg_losses else { return None };
        self.pg_clipfrac = Some(clipped_share(trainer, [losses2, losses1], rollout.returns.padding_mask.as_ref())?);
        let logits = self.logits.clone()?;
        self.prob_dist = Some(logits.softmax(None));
        self.entropy = {
            let normalizers = logits.logsumexp();
            let expected = {
                let product = self.prob_dist.as_ref()?.mul(&logits);
                product.reduce_last("sum.dim_IntList", ReduceKind::Sum, product.dtype())
            };
            Some(&normalizers - &expected)
        };
        let mean = |x: &Tensor| x.reduce_all("mean.default", ReduceKind::Mean, x.dtype());
        self.approxkl = {
            let mean = {
                let difference = self.logprobs_diff.as_ref()?;
                mean(&difference.map("pow.Tensor_Scalar", difference.dtype()))
            };
            Some(mean.mul_scalar(0.5))
        };
        mean(self.entropy.as_ref()?);
        mean(self.ratio.as_ref()?);
        Some(())
    }
}

/// `masked_mean((losses2 > losses1).float(), ~mask[micro_batch_inds])`
fn clipped_share(trainer: &Trainer, losses: [&Tensor; 2], mask: Option<&Tensor>) -> Option<Tensor> {
    let is_clipped = losses[0].binary("gt.Tensor", losses[1], DType::Bool);
    let numbers = is_clipped.to(DType::Float32);
    drop(is_clipped);
    let others = pick_others(trainer, mask)?;
    Some(masked_mean(&numbers, &others))
}
