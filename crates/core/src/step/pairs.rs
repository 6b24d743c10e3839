//! Pairs of answers without a reference, as TRL's `ORPOTrainer` and `CPOTrainer` train on them (trl 1.16, experimental/orpo and
//! experimental/cpo): chosen and rejected answers in one batch, their log-probabilities from whole logits.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{JobSpec, PairLoss, PairsSpec};
use crate::model::family::{ForwardCall, ModelOutput};
use crate::op::{Reduction, TokenOutputs, UNTOLD, cat, full, selective_log_softmax, where_number};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::batches::Batches;
use super::gathered::Processes;
use super::liger::apply_liger_kernels;
use super::models::Policy;
use super::repetition::Repetition;
use super::trainer::{self, Recipe};
use super::wrapped::{Called, Wrapped};

/// Trains the model.
pub(super) fn train_pairs(job: &JobSpec, spec: &PairsSpec, context: &Rc<Context>, policy: Policy) -> Repetition {
    if job.quantization.is_none() {
        policy.builder.load_buffers_last();
        policy.builder.load_adapters_last();
    }
    let mode = policy.builder.mode();
    mode.disable_dropout();
    apply_liger_kernels(job, &mode);
    let processes = Processes::of(job);
    let barrier = processes.wait_for_main(context);
    let parameters = policy.builder.trainable();
    let wrapped = Wrapped::new(job, context, policy.into_loaded(), TokenOutputs::default());
    let trainer = Trainer { job, spec, context, wrapped, processes, _barrier: barrier, batches: Batches::default() };
    trainer::run_trainer(job, context, &parameters, &trainer)
}

struct Trainer<'a> {
    job: &'a JobSpec,
    spec: &'a PairsSpec,
    context: &'a Rc<Context>,
    wrapped: Wrapped<'a>,
    processes: Processes,
    _barrier: Option<Tensor>,
    batches: Batches<Batch>,
}

/// What the collator makes of pairs.
struct Batch {
    /// Token ids, attention mask and labels of each kind of answer.
    chosen: [Tensor; 3],
    rejected: [Tensor; 3],
    _prompts: [Tensor; 2],
}

/// What `concatenated_forward` returns.
struct Outputs {
    chosen_logps: Tensor,
    rejected_logps: Tensor,
    chosen_logits: Tensor,
    rejected_logits: Tensor,
    nll_loss: Tensor,
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
        let pairs = self.job.micro_batch_size;
        let tokens = self.spec.prompt_len + self.spec.completion_len;
        let ids = |tokens: u64| full(self.context, "_to_copy.default", &[pairs, tokens], DType::Int64);
        let answers = || [(); 3].map(|()| ids(tokens));
        Batch { chosen: answers(), rejected: answers(), _prompts: [(); 2].map(|()| ids(self.spec.prompt_len)) }
    }

    /// `model(input_ids, attention_mask=attention_mask, use_cache=False)`
    fn forward(&self, [input_ids, attention_mask, _]: &[Tensor; 3]) -> Option<ModelOutput> {
        self.wrapped.call(&ForwardCall { attention_mask: Some(attention_mask), ..ForwardCall::new(input_ids) })
    }

    /// `concatenated_forward`
    fn concatenated_forward(&self, batch: &Batch) -> Option<Outputs> {
        let [chosen, rejected] = [&batch.chosen, &batch.rejected];
        let concatenated = [0, 1, 2].map(|at| cat(&[&chosen[at], &rejected[at]], 0));
        let outputs = self.forward(&concatenated)?;
        let all_logits = outputs.logits.as_ref()?;
        let labels = self.nll_labels(&concatenated);
        let pairs = self.job.micro_batch_size;
        let nll_loss = if self.spec.has_nll {
            cross_entropy_loss(&all_logits.slice_any(0, pairs), &labels.narrow_any(0, pairs))
        } else {
            full(self.context, "_to_copy.default", &[], DType::Float32)
        };
        let all_logps = self.batch_logps(all_logits, &concatenated[2]);
        let logits = |logits: Tensor| match self.spec.loss {
            PairLoss::OddsRatio => logits.narrow_any(1, logits.size(1) - 1),
            _ => logits,
        };
        Some(Outputs {
            chosen_logps: all_logps.slice_any(0, pairs),
            rejected_logps: all_logps.slice_any(0, pairs),
            chosen_logits: logits(all_logits.narrow_any(0, pairs)),
            rejected_logits: logits(all_logits.narrow_any(0, pairs)),
            nll_loss,
        })
    }

    /// ORPO's likelihood is that of prompt and answer, CPO's of the answer.
    fn nll_labels(&self, [input_ids, attention_mask, labels]: &[Tensor; 3]) -> Tensor {
        if self.spec.loss != PairLoss::OddsRatio {
            return labels.clone_contiguous();
        }
        let labels = input_ids.clone_contiguous();
        let is_token = attention_mask.eq_number(1.0);
        where_number(&is_token, labels, UNTOLD, DType::Int64)
    }

    /// `get_batch_logps`: of each answer, a sum or a mean over its tokens.
    fn batch_logps(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let tokens = labels.size(1) - 1;
        let mut labels = labels.narrow_any(1, tokens).clone_contiguous();
        let logits = logits.slice_any(1, tokens);
        let loss_mask = labels.ne_number(UNTOLD);
        let is_ignored = labels.eq_number(UNTOLD);
        // CPO fills its labels in place.
        if self.spec.loss == PairLoss::OddsRatio {
            labels = where_number(&is_ignored, labels, UNTOLD, DType::Int64);
        }
        drop(is_ignored);
        let per_token_logps = selective_log_softmax(&logits, &labels);
        let sums = per_token_logps.mul(&loss_mask).sum_each();
        if self.spec.loss.averages() { sums.div_by(&loss_mask.count_last()) } else { sums }
    }

    /// `get_batch_loss_metrics`
    fn loss(&self, batch: &Batch) -> Option<Tensor> {
        let outputs = self.concatenated_forward(batch)?;
        let (chosen, rejected) = (&outputs.chosen_logps, &outputs.rejected_logps);
        let mut logged = Vec::new();
        let (losses, margin) = match self.spec.loss {
            PairLoss::OddsRatio => (odds_ratio_loss(chosen, rejected, &mut logged), None),
            loss => cpo_loss(loss, chosen, rejected),
        };
        let rewards = [chosen, rejected].map(|logps| logps.detach().mul_scalar(UNTOLD));
        drop(margin);
        let loss = match self.spec.loss {
            PairLoss::OddsRatio => {
                let [ratio, log_odds] = [0, 1].map(|at| logged[at].mean());
                logged = vec![ratio, log_odds];
                &outputs.nll_loss - &losses.mean()
            }
            _ => &losses.mean() + &outputs.nll_loss.mul_scalar(UNTOLD),
        };
        self.log_metrics(&outputs, &rewards, &logged);
        Some(loss)
    }

    /// What is logged; ORPO's numbers are read when all are there.
    fn log_metrics(&self, outputs: &Outputs, [chosen_rewards, rejected_rewards]: &[Tensor; 2], logged: &[Tensor]) {
        let mut metrics = Vec::new();
        let mean_of_all = |x: &Tensor| self.processes.gather(x).mean();
        let mut log = |value: Tensor| {
            if self.spec.loss == PairLoss::OddsRatio {
                metrics.push(value);
            }
        };
        let accuracies = {
            let is_greater = chosen_rewards.gt_tensor(rejected_rewards);
            is_greater.to(DType::Float32)
        };
        for values in [chosen_rewards, rejected_rewards, &accuracies] {
            log(mean_of_all(values));
        }
        log(mean_of_all(&(chosen_rewards - rejected_rewards)));
        for logps in [&outputs.rejected_logps, &outputs.chosen_logps] {
            log(mean_of_all(&logps.detach()));
        }
        for logits in [&outputs.rejected_logits, &outputs.chosen_logits] {
            log(mean_of_all(&logits.detach().mean()));
        }
        for value in [&outputs.nll_loss].into_iter().chain(logged) {
            log(mean_of_all(&value.detach()));
        }
    }
}

/// The loss of the next token over [rows, tokens, vocabulary].
fn cross_entropy_loss(logits: &Tensor, labels: &Tensor) -> Tensor {
    let tokens = labels.size(1) - 1;
    let logits = logits.slice_any(1, tokens).contiguous();
    let labels = labels.narrow_any(1, tokens).contiguous();
    let flat = logits.view(&[labels.numel(), logits.size(-1)]);
    flat.cross_entropy(&labels.view(&[labels.numel()]), Reduction::Mean)
}

/// `odds_ratio_loss`; `logged` is what else is logged: the ratio and the log-odds.
fn odds_ratio_loss(chosen: &Tensor, rejected: &Tensor, logged: &mut Vec<Tensor>) -> Tensor {
    let log_odds = {
        let difference = chosen - rejected;
        let against = {
            let chosen = log1mexp(chosen);
            let rejected = log1mexp(rejected);
            &chosen - &rejected
        };
        &difference - &against
    };
    let ratio = log_odds.log_sigmoid();
    let losses = ratio.mul_scalar(UNTOLD);
    logged.extend([ratio, log_odds]);
    losses
}

/// `log(1 - exp(x))`, by two formulas.
fn log1mexp(x: &Tensor) -> Tensor {
    let is_low = x.lt_number(UNTOLD);
    let low = x.exp().neg().log1p();
    let high = x.expm1().neg().log();
    is_low.choose(&low, &high)
}

/// `cpo_loss`, and the margin between both answers, which lives until the rewards are there.
fn cpo_loss(loss: PairLoss, chosen: &Tensor, rejected: &Tensor) -> (Tensor, Option<Tensor>) {
    let mut logits = chosen - rejected;
    if loss == PairLoss::Simpo {
        logits = logits.sub_scalar(UNTOLD);
    }
    let scaled = |logits: &Tensor| logits.mul_scalar(UNTOLD);
    let losses = match loss {
        PairLoss::Hinge => {
            let scaled = scaled(&logits);
            let rest = scaled.rsub_scalar(1.0);
            drop(scaled);
            rest.relu()
        }
        PairLoss::Ipo => logits.sub_scalar(UNTOLD).pow_scalar(2.0),
        _ => {
            let mut likely = scaled(&logits).log_sigmoid();
            likely = likely.neg();
            likely = likely.mul_scalar(UNTOLD);
            let mut unlikely = scaled(&logits).log_sigmoid();
            unlikely = unlikely.mul_scalar(UNTOLD);
            &likely - &unlikely
        }
    };
    (losses, Some(logits))
}
