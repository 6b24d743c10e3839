//! `ACTLossHead` (models/losses.py): metrics of the rows that halt, the loss of the answer and those of halting.

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::op::Reduction;
use crate::tensor::Tensor;

use super::config::{Config, LossType};
use super::layers::CastedSparseEmbedding;
use super::model::{ActModel, Batch, Carry, Outputs};

/// Labels that no loss counts (`IGNORE_LABEL_ID`).
const IGNORED: f64 = -100.0;
/// What keeps stablemax from dividing by nothing.
const EPSILON: f64 = 1e-30;

/// What the head returns beside the carry.
#[allow(dead_code, reason = "the simulated loop keeps what a training reads")]
pub(crate) struct Results {
    pub loss: Tensor,
    /// In the order of the dictionary: of the rows that halt their number, accuracy, exact accuracy, accuracy of halting and steps; then
    /// the losses of the answer, of halting and, where rows think more than once, of going on.
    pub metrics: Vec<Tensor>,
    /// The logits, where they were asked for.
    pub logits: Option<Tensor>,
    /// How sure each row is, with them.
    pub q_halt_logits: Option<Tensor>,
    /// Whether every row halted; it stays until the next segment's is there.
    pub all_halted: Tensor,
}

/// What is known about the answers, all per row but the first. The head's variables: they live until it returns.
struct Correctness {
    is_correct: Tensor,
    _loss_counts: Tensor,
    loss_divisor: Tensor,
    seq_is_correct: Tensor,
    valid_metrics: Tensor,
}

pub(crate) struct ActLossHead {
    module: Module,
    model: ActModel,
}

impl ActLossHead {
    pub(crate) fn new(at: &Builder, config: Config) -> Self {
        Self { module: at.module(), model: ActModel::new(&at.at("model"), config) }
    }

    pub(crate) fn puzzle_emb(&self) -> Option<&CastedSparseEmbedding> {
        self.model.puzzle_emb()
    }

    pub(crate) fn initial_carry(&self, batch: &Batch) -> Carry {
        self.model.initial_carry(batch)
    }

    /// One segment; `returns_logits` is what `return_keys` asks for.
    pub(crate) fn forward(&self, carry: &Carry, batch: &Batch, returns_logits: bool) -> (Carry, Results) {
        let _module = self.module.enter();
        let (new_carry, outputs) = self.model.forward(carry, batch);
        let labels = &new_carry.current_data.labels;
        let mask = labels.ne_number(IGNORED);
        let correctness = Correctness::of(&mask, &new_carry, &outputs.logits);
        let mut metrics = correctness.metrics(&new_carry, &outputs);
        // Blocks and drops are Python's lives: merging them would free in another order.
        let lm_loss = {
            let losses = self.loss(&outputs.logits, labels).div(&correctness.loss_divisor);
            losses.sum()
        };
        let target = correctness.seq_is_correct.to(DType::Float32);
        let q_halt_loss = outputs.q_halt_logits.binary_cross_entropy_with_logits(&target);
        drop(target);
        metrics.extend([lm_loss.detach(), q_halt_loss.detach()]);
        let halting = match &outputs.target_q_continue {
            Some(target) => {
                let q_continue_loss = outputs.q_continue_logits.binary_cross_entropy_with_logits(target);
                metrics.push(q_continue_loss.detach());
                &q_halt_loss + &q_continue_loss
            }
            None => q_halt_loss.add_scalar(0.0),
        };
        let halved = halting.mul_scalar(0.5);
        drop(halting);
        let loss = &lm_loss + &halved;
        drop(halved);
        let logits = returns_logits.then(|| outputs.logits.detach());
        let q_halt_logits = returns_logits.then(|| outputs.q_halt_logits.detach());
        let all_halted = new_carry.halted.all();
        (new_carry, Results { loss, metrics, logits, q_halt_logits, all_halted })
    }

    fn loss(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        match self.model.config().loss_type {
            LossType::Stablemax => stablemax_cross_entropy(logits, labels),
            LossType::Softmax => softmax_cross_entropy(logits, labels),
        }
    }
}

impl Correctness {
    fn of(mask: &Tensor, carry: &Carry, logits: &Tensor) -> Self {
        let labels = &carry.current_data.labels;
        let _no_grad = labels.context().set_grad_enabled(false);
        let loss_counts = mask.count_last();
        let loss_divisor = loss_counts.clamp_min_int(1).unsqueeze(1);
        let is_correct = {
            let answers = logits.argmax_last();
            let matches = answers.eq_tensor(labels);
            drop(answers);
            mask.bitwise_and(&matches)
        };
        let seq_is_correct = is_correct.count_last().eq_tensor(&loss_counts);
        let valid_metrics = carry.halted.bitwise_and(&loss_counts.gt_number(0.0));
        Self { is_correct, _loss_counts: loss_counts, loss_divisor, seq_is_correct, valid_metrics }
    }

    /// Metrics of the rows that halt.
    fn metrics(&self, carry: &Carry, outputs: &Outputs) -> Vec<Tensor> {
        let _no_grad = self.is_correct.context().set_grad_enabled(false);
        let valid_metrics = &self.valid_metrics;
        let counted = valid_metrics.sum();
        let accuracy = {
            let shares = {
                let share = self.is_correct.float().div(&self.loss_divisor);
                share.sum_rows()
            };
            let valid = valid_metrics.choose_or_number(&shares, 0.0);
            drop(shares);
            valid.sum()
        };
        let exact_accuracy = valid_metrics.bitwise_and(&self.seq_is_correct).sum();
        let q_halt_accuracy = {
            let agrees = {
                let halts = outputs.q_halt_logits.ge_number(0.0);
                halts.eq_tensor(&self.seq_is_correct)
            };
            let valid = valid_metrics.bitwise_and(&agrees);
            drop(agrees);
            valid.sum()
        };
        let steps = valid_metrics.choose_or_number(&carry.steps, 0.0).sum();
        vec![counted, accuracy, exact_accuracy, q_halt_accuracy, steps]
    }
}

/// `s`: `where(x < 0, 1 / (1 - x + epsilon), x + 1)`
fn s(x: &Tensor) -> Tensor {
    let is_negative = x.lt_number(0.0);
    let below = {
        let shifted = {
            let one_minus = x.rsub_scalar(1.0);
            one_minus.add_scalar(EPSILON)
        };
        shifted.reciprocal().mul_scalar(1.0)
    };
    let above = x.add_scalar(1.0);
    is_negative.choose(&below, &above)
}

fn log_stablemax(x: &Tensor) -> Tensor {
    let s_x = s(x);
    let share = {
        let total = s_x.sum_last();
        s_x.div(&total)
    };
    share.log()
}

fn stablemax_cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    let logprobs = log_stablemax(&logits.to(DType::Float64));
    let valid_mask = labels.ne_number(IGNORED);
    let transformed_labels = valid_mask.choose_or_number(labels, 0.0);
    let last = labels.sizes().len();
    let prediction_logprobs = {
        let indices = transformed_labels.to(DType::Int64).unsqueeze(last);
        logprobs.gather(&indices).squeeze(last)
    };
    valid_mask.choose_or_number(&prediction_logprobs, 0.0).neg()
}

fn softmax_cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    let rows = labels.numel();
    let logits = logits.float().view(&[rows, logits.size(-1)]);
    let targets = labels.to(DType::Int64).view(&[rows]);
    logits.cross_entropy(&targets, Reduction::None).view(labels.sizes())
}
