//! `training_step` and what the Trainer's loop makes of its gradients (transformers 5.17, trainer.py).

use tonnage_torch::{Torch, operator};

use super::batch::Batch;
use super::logps::{LogpsCall, per_token_logps};
use super::loss::{LossTerms, Tokens, loss_of};
use super::policy::Policy;
use crate::clip::clip_grad_norm;
use crate::error::TrainError;
use crate::optimizer::Optimizer;
use crate::tensor::{Tensor, caught, or_stop};
use crate::training::host_number;

/// Python variables that live from one pass to the next.
#[derive(Default)]
pub(super) struct Variables {
    tr_loss_step: Option<Tensor>,
    grad_norm: Option<tonnage_torch::Tensor>,
}

/// What passes are made with.
pub(super) struct Updater<'a> {
    pub torch: &'static Torch,
    pub policy: Policy<'a>,
    pub terms: LossTerms,
    /// The norm that gradients are clipped to.
    pub clip: Option<f64>,
    /// Whether numbers mean anything.
    pub reads_values: bool,
}

/// What a pass came to, over the tokens that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Passed {
    pub loss: f64,
    pub entropy: f64,
    pub kl: Option<f64>,
    pub clipped: f64,
    pub tokens: u64,
}

impl Updater<'_> {
    /// Forward, loss and backward of a micro-batch.
    pub fn pass(&self, batch: &Batch, variables: &mut Variables) -> Result<Passed, TrainError> {
        let (loss, passed) = caught(|| self.compute_loss(batch))?;
        {
            // accelerate's, by the one process's one step.
            let divided = caught(|| loss.div_scalar(1.0))?;
            self.torch.backward(divided.inner())?;
        }
        let tr_loss_step = caught(|| loss.detached())?;
        drop(loss);
        let loss = &*variables.tr_loss_step.insert(tr_loss_step);
        caught(|| {
            let _is_nan = loss.run(operator!("isnan"), []);
            let _is_infinite = loss.run(operator!("isinf"), []);
        })?;
        Ok(passed)
    }

    fn compute_loss(&self, batch: &Batch) -> (Tensor, Passed) {
        let (input_ids, attention_mask) = batch.joined();
        let mask = &batch.completion_mask;
        let call = LogpsCall {
            input_ids: &input_ids,
            attention_mask: &attention_mask,
            logits_to_keep: batch.completion_ids.size(1),
            batch_size: None,
            entropy: true,
        };
        let (logps, entropies) = per_token_logps(&self.policy, &call);
        let advantages = batch.advantages.clone().unwrap_or_else(|| logps.detached());
        let made = loss_of(
            &self.terms,
            &Tokens {
                logps: &logps,
                old_logps: batch.old_per_token_logps.as_ref(),
                reference: batch.ref_per_token_logps.as_ref(),
                advantages: &advantages,
                mask,
                num_items: &batch.num_items_in_batch,
            },
        );
        let _no_grad = self.torch.no_grad();
        let mean = |tensor: &Tensor| masked_mean(&tensor.detached(), mask);
        let passed = Passed {
            loss: self.value(&made.loss.detached()),
            entropy: entropies.as_ref().map_or(0.0, |entropies| self.value(&mean(entropies))),
            kl: made.kl.as_ref().map(|kl| self.value(&mean(kl))),
            clipped: self.value(&mean(&made.is_clipped.float())),
            tokens: self.value(&mask.sum_all()) as u64,
        };
        (made.loss, passed)
    }

    fn value(&self, tensor: &Tensor) -> f64 {
        if self.reads_values { tensor.host_value() } else { 0.0 }
    }

    /// Clips, steps, and takes the gradients away. Returns the norm before clipping.
    pub fn update(&self, optimizer: &mut dyn Optimizer, variables: &mut Variables) -> Result<Option<f64>, TrainError> {
        variables.grad_norm = None;
        // Without clipping the norm is taken all the same, to be logged.
        let most = self.clip.unwrap_or(f64::INFINITY);
        variables.grad_norm = clip_grad_norm(self.torch, optimizer.parameters(), most)?;
        let norm = variables.grad_norm.as_ref().filter(|_| self.reads_values).map(host_number).transpose()?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        Ok(norm)
    }
}

/// `(x * mask).sum() / mask.sum().clamp(min=1)`
fn masked_mean(x: &Tensor, mask: &Tensor) -> Tensor {
    let sum = (x * mask).sum_all();
    sum.div_by(&mask.sum_all().clamp_to(Some(1.0), None))
}

/// `tr_loss`, which lives as long as the training.
pub(super) fn total_loss(policy: &Policy<'_>) -> Result<Tensor, TrainError> {
    let context = policy.context();
    caught(|| {
        let zero = or_stop(context.torch.tensor(&[0.0_f32], &[]));
        Tensor::of(context, or_stop(zero.to_device(context.device)))
    })
}
