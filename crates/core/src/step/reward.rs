//! A reward model as TRL's `RewardTrainer` trains it (trl 1.16, trainer/reward_trainer.py): chosen and rejected rows in one
//! batch through a model with one label, and the margin between their scores.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{JobSpec, RewardSpec};
use crate::model::family::{ForwardCall, ModelOutput};
use crate::op::{ReduceKind, TokenOutputs, full};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::batches::Batches;
use super::gathered::{Processes, sum_all};
use super::models::Policy;
use super::repetition::Repetition;
use super::trainer::{self, Recipe};
use super::wrapped::{Called, Wrapped};

/// Trains the model with its score.
pub(super) fn train_reward(job: &JobSpec, spec: &RewardSpec, context: &Rc<Context>, policy: Policy) -> Repetition {
    policy.builder.load_buffers_last();
    policy.builder.load_adapters_last();
    if spec.disable_dropout {
        policy.builder.mode().disable_dropout();
    }
    let processes = Processes::of(job);
    let barrier = processes.wait_for_main(context);
    let parameters = policy.builder.trainable();
    let wrapped = Wrapped::new(job, context, policy.into_loaded(), TokenOutputs::default());
    let trainer = Trainer { job, spec, context, wrapped, processes, _barrier: barrier, batches: Batches::default() };
    trainer::run_trainer(job, context, &parameters, &trainer)
}

struct Trainer<'a> {
    job: &'a JobSpec,
    spec: &'a RewardSpec,
    context: &'a Rc<Context>,
    wrapped: Wrapped<'a>,
    processes: Processes,
    _barrier: Option<Tensor>,
    batches: Batches<Batch>,
}

/// What the collator makes of pairs: chosen rows, then rejected ones.
struct Batch {
    input_ids: Tensor,
    attention_mask: Tensor,
}

impl Recipe for Trainer<'_> {
    fn wrapped(&self) -> &Wrapped<'_> {
        &self.wrapped
    }

    fn get_batch_samples(&self) {
        self.batches.load(self.job.gradient_accumulation_steps, || self.make_batch());
    }

    fn compute_loss(&self, pass: u64) -> Option<Tensor> {
        self.batches.read(pass, |batch| self.loss(batch)).flatten()
    }

    fn divides_loss(&self) -> bool {
        true
    }

    fn end(&self) {
        self.batches.clear();
    }
}

impl Trainer<'_> {
    fn make_batch(&self) -> Batch {
        let _category = self.context.enter_category(Category::Input);
        let sizes = [2 * self.job.micro_batch_size, self.job.seq_len];
        let ids = || full(self.context, "_to_copy.default", &sizes, DType::Int64);
        Batch { input_ids: ids(), attention_mask: ids() }
    }

    /// `model(**inputs)`
    fn forward(&self, batch: &Batch) -> Option<ModelOutput> {
        self.wrapped
            .call(&ForwardCall { attention_mask: Some(&batch.attention_mask), ..ForwardCall::new(&batch.input_ids) })
    }

    fn loss(&self, batch: &Batch) -> Option<Tensor> {
        let outputs = self.forward(batch)?;
        let logits = outputs.logits.as_ref()?;
        let [rewards_chosen, rewards_rejected]: [Tensor; 2] = logits.view(&[logits.size(0)]).split(0);
        let mut loss = {
            let mean = {
                let margin = &rewards_chosen - &rewards_rejected;
                let log_odds = margin.log_sigmoid();
                drop(margin);
                log_odds.mean()
            };
            mean.neg()
        };
        if self.spec.center_rewards_coefficient > 0.0 {
            let mean = {
                let sum = &rewards_chosen + &rewards_rejected;
                sum.pow_scalar(2.0).mean()
            };
            loss = loss.add_in_place(&mean.mul_scalar(self.spec.center_rewards_coefficient));
        }
        self.processes.sum_of_all(sum_all(&batch.attention_mask));
        log_rewards(self.processes, logits, [&rewards_chosen, &rewards_rejected]);
        Some(loss)
    }
}

/// The least, mean and greatest reward, the accuracy and the margin.
fn log_rewards(processes: Processes, logits: &Tensor, [chosen, rejected]: [&Tensor; 2]) {
    let _no_grad = logits.context().set_grad_enabled(false);
    let all_rewards = processes.gather(logits);
    let dtype = all_rewards.dtype();
    all_rewards.reduce_all("min.default", ReduceKind::WholeMax, dtype);
    all_rewards.reduce_all("mean.default", ReduceKind::Mean, dtype);
    all_rewards.reduce_all("max.default", ReduceKind::WholeMax, dtype);
    let mut mean_accuracy = {
        let is_greater = chosen.binary("gt.Tensor", rejected, DType::Bool);
        let accuracies = is_greater.to(DType::Float32);
        drop(is_greater);
        accuracies.mean()
    };
    mean_accuracy = processes.gather(&mean_accuracy).mean();
    drop(mean_accuracy);
    let mut mean_margin = (chosen - rejected).mean();
    mean_margin = processes.gather(&mean_margin).mean();
    drop(mean_margin);
}
