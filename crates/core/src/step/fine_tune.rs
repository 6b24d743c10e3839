//! Fine-tuning on labels as the trainers do it: Hugging Face's `Trainer` with the model's own loss (transformers 5.17,
//! trainer.py, `compute_loss`), and TRL's `SFTTrainer` with its fused head (trl 1.16, trainer/sft_trainer.py).

use std::cell::RefCell;
use std::rc::Rc;

use crate::dtype::DType;
use crate::family::{ForwardCall, Model};
use crate::nn::Builder;
use crate::op::{ReduceKind, TokenOutputs, full};
use crate::spec::{Framework, JobSpec, LossKernel, Strategy, Task};
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

use super::fused_head::{FusedCall, fused_forward};
use super::prepared::Prepared;
use super::train::Repetition;
use super::trainer::{self, Recipe};

/// Batches of a step that are tensors of their own; those beyond lie in one.
const BATCHES: u64 = 1024;
/// More than any GPU holds.
const MAX_ELEMENTS: u64 = 1 << 44;

/// Whether the framework's own loop is simulated; what it is not for runs in a plain one, with the framework's settings.
pub(super) fn has_loop(job: &JobSpec) -> bool {
    let framework = match job.task {
        Task::CausalLm if job.model.model_type == "agi2" => false,
        Task::CausalLm => matches!(job.framework, Framework::Trainer | Framework::Trl),
        Task::MaskedLm => job.framework == Framework::Trainer,
        _ => false,
    };
    let is_usual = job.train_mode && job.zero_grad_set_to_none && !job.logits.keep_outputs && !job.use_cache;
    let is_one_process = job.parallel.strategy == Strategy::None;
    framework && is_usual && is_one_process && !job.precision.scales_loss() && job.logits.loss == LossKernel::Full
}

/// Trains as the Trainer's inner loop does; what was run of the steps.
pub(super) fn train(job: &JobSpec, context: &Rc<Context>, model: &dyn Model, builder: &Builder) -> Repetition {
    if job.framework == Framework::Trl {
        builder.load_adapters_last();
    }
    let trainer = FineTune { job, context, model, batches: RefCell::default() };
    trainer::train(job, context, &builder.trainable(), &trainer)
}

struct FineTune<'a> {
    job: &'a JobSpec,
    context: &'a Rc<Context>,
    model: &'a dyn Model,
    batches: RefCell<Batches>,
}

/// Those of the running step, and how many tokens have a label.
#[derive(Default)]
struct Batches {
    inputs: Vec<Inputs>,
    _rest: Option<Inputs>,
    num_items_in_batch: Option<Tensor>,
}

/// What the collator makes of rows of one length.
#[derive(Clone)]
struct Inputs {
    input_ids: Tensor,
    attention_mask: Tensor,
    labels: Tensor,
}

impl Recipe for FineTune<'_> {
    fn get_batch_samples(&self) {
        let rows = self.job.micro_batch_size;
        let batches = self.job.gradient_accumulation_steps;
        let inputs: Vec<_> = (0..batches.min(BATCHES)).map(|_| self.inputs(rows)).collect();
        let rest = batches.saturating_sub(BATCHES).saturating_mul(rows).min(MAX_ELEMENTS / self.job.seq_len.max(1));
        let rest = (rest > 0).then(|| self.inputs(rest));
        let num_items_in_batch = num_items(&inputs);
        let used_up = self.batches.replace(Batches { inputs, _rest: rest, num_items_in_batch });
        drop(used_up);
    }

    fn compute_loss(&self, pass: u64) -> Option<Tensor> {
        let at = (pass % self.job.gradient_accumulation_steps.max(1)).min(BATCHES - 1) as usize;
        let (inputs, num_items) = {
            let batches = self.batches.borrow();
            (batches.inputs.get(at)?.clone(), batches.num_items_in_batch.clone()?)
        };
        match self.job.framework {
            Framework::Trl => Some(self.fused_loss(&inputs, &num_items)),
            _ => self.own_loss(&inputs, &num_items),
        }
    }

    fn end(&self) {
        let used_up = self.batches.take();
        drop(used_up);
    }
}

impl FineTune<'_> {
    fn inputs(&self, rows: u64) -> Inputs {
        let _category = self.context.enter_category(Category::Input);
        let sizes = [rows, self.job.seq_len];
        let ids = || full(self.context, "_to_copy.default", &sizes, DType::Int64);
        Inputs { input_ids: ids(), attention_mask: ids(), labels: ids() }
    }

    fn prepared(&self, head_outputs: TokenOutputs) -> Prepared<'_> {
        let autocast = self.job.precision.autocast_dtype();
        Prepared { context: self.context, model: self.model, autocast, head_outputs }
    }

    /// `model(**inputs, num_items_in_batch=...)["loss"]`: the model sums the losses and divides by the number.
    fn own_loss(&self, inputs: &Inputs, num_items: &Tensor) -> Option<Tensor> {
        let outputs = self.prepared(TokenOutputs::default()).forward(&ForwardCall {
            input_ids: &inputs.input_ids,
            attention_mask: Some(&inputs.attention_mask),
            position_ids: None,
            labels: Some(&inputs.labels),
            cache: None,
            logits_to_keep: self.job.logits.logits_to_keep,
            fused_loss: false,
        });
        let loss = outputs.loss.as_ref()?.div_by(num_items);
        // `loss *= num_processes`, in place.
        Some(loss)
    }

    /// `model(**inputs, fused_lm_head=True)` and what is logged of it.
    fn fused_loss(&self, inputs: &Inputs, num_items: &Tensor) -> Tensor {
        let model = self.prepared(TokenOutputs { entropy: true, mean_logits: false, is_top1: true });
        let outputs = {
            let _autocast = self.context.autocast(model.autocast);
            let scored = self.job.micro_batch_size * (self.job.seq_len - 1);
            fused_forward(
                &model,
                &FusedCall {
                    input_ids: &inputs.input_ids,
                    attention_mask: &inputs.attention_mask,
                    labels: &inputs.labels,
                    scored,
                    cast_lm_head_to_fp32: false,
                },
            )
        };
        let per_token_loss = outputs.log_probs.neg();
        let mut loss = {
            let sum = per_token_loss.sum();
            let clamped = num_items.unary("clamp.default", DType::Int64);
            sum.div_by(&clamped)
        };
        loss = loss.mul_scalar();
        let count = |x: &Tensor| total(&total(x));
        let num_valid = count(&outputs.label_mask);
        let entropy_sum = outputs.entropy.as_ref().map(|entropy| count(&entropy.detach()));
        let num_correct = outputs.is_top1.as_ref().map(count);
        for logged in [&entropy_sum, &num_correct].into_iter().flatten() {
            num_valid.map("gt.Scalar", DType::Bool);
            logged.binary("div.Tensor", &num_valid, DType::Float32);
        }
        count(&inputs.attention_mask);
        loss
    }
}

/// `sum(labels[..., 1:].ne(-100).sum() for ...)`
fn num_items(inputs: &[Inputs]) -> Option<Tensor> {
    let mut sum: Option<Tensor> = None;
    for batch in inputs {
        let labels = batch.labels.narrow(1, batch.labels.size(1) - 1);
        let count = {
            let counted = labels.map("ne.Scalar", DType::Bool);
            total(&counted)
        };
        sum = Some(match &sum {
            None => count.unary("add.Tensor", DType::Int64),
            Some(sum) => sum.binary("add.Tensor", &count, DType::Int64),
        });
    }
    sum
}

/// `x.sum()`, outside autograd
fn total(x: &Tensor) -> Tensor {
    let dtype = if x.dtype().is_floating_point() { x.dtype() } else { DType::Int64 };
    x.reduce_all("sum.default", ReduceKind::Sum, dtype)
}
