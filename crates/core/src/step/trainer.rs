//! Hugging Face's `Trainer` (transformers 5.17, trainer.py, `_run_epoch`), from the first step to the last; what is a
//! trainer's own is its [`Recipe`]. The names of variables that live on are Python's.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{ReduceKind, full};
use crate::optimizer::{self, Optimizer};
use crate::spec::JobSpec;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::train::{ENOUGH_EVENTS, PASSES_RUN, Repetition, STEPS_RUN};

/// What one trainer does its own way.
pub(super) trait Recipe {
    /// `get_batch_samples`: the batches of an optimizer step come to the device.
    fn get_batch_samples(&self) {}

    /// `_prepare_inputs`, before pass number `pass`.
    fn prepare_inputs(&self, _pass: u64) {}

    /// `compute_loss(model, inputs)`; `None` where there are no inputs.
    fn compute_loss(&self, pass: u64) -> Option<Tensor>;

    /// Whether the loop divides the loss by the number of passes, as where the loss is a mean of its own batch.
    fn divides_loss(&self) -> bool {
        false
    }

    /// Whether every pass does what the one before did, so that those of a long job can be left out.
    fn repeats(&self) -> bool {
        false
    }

    /// The end of the loop: what its variables hold goes.
    fn end(&self) {}
}

/// Python variables that live from one pass to the next.
#[derive(Default)]
struct Variables {
    tr_loss_step: Option<Tensor>,
    grad_norm: Option<Tensor>,
}

/// `trainer.train()`
pub(super) fn train(job: &JobSpec, context: &Rc<Context>, parameters: &[Tensor], recipe: &dyn Recipe) -> Repetition {
    context.begin_step(1);
    context.phase(PhaseKind::Between);
    // `accelerator.free_memory()` (accelerate 1.15), with which `_inner_training_loop` begins.
    context.empty_cache();
    let mut optimizers = create_optimizer(job, parameters);
    let tr_loss = full(context, "_to_copy.default", &[], DType::Float32);
    let mut variables = Variables::default();
    let mut run = Repetition { steps: 0, passes: job.gradient_accumulation_steps };
    for step in 1..=job.steps {
        let is_long = || recipe.repeats() && context.events() >= ENOUGH_EVENTS;
        if step > STEPS_RUN && is_long() {
            break;
        }
        run.steps = step;
        recipe.get_batch_samples();
        let before = u64::from(step - 1).saturating_mul(job.gradient_accumulation_steps);
        let mut begun = [context.phases(); 2];
        for pass in 1..=job.gradient_accumulation_steps {
            begun = [begun[1], context.phases()];
            training_step(context, recipe, before.saturating_add(pass - 1), &mut variables);
            if pass >= PASSES_RUN && pass < job.gradient_accumulation_steps && is_long() {
                run.passes = run.passes.min(pass);
                context.count_phases_again(begun[0]..begun[1], job.gradient_accumulation_steps - pass);
                break;
            }
        }
        variables.grad_norm = None;
        update(context, parameters, &mut optimizers, &mut variables);
        context.begin_step(step + 1);
        context.phase(PhaseKind::Between);
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
        tr_loss.reduce_all("mean.default", ReduceKind::Mean, DType::Float32);
    }
    drop(variables);
    recipe.end();
    context.end();
    run
}

/// `create_optimizer`: matrices decay and come first, biases and norms do not.
fn create_optimizer(job: &JobSpec, parameters: &[Tensor]) -> Vec<Box<dyn Optimizer>> {
    let is_matrix = |parameter: &Tensor| parameter.sizes().len() >= 2;
    let (matrices, rest): (Vec<Tensor>, Vec<Tensor>) = parameters.iter().cloned().partition(is_matrix);
    [matrices, rest].iter().map(|group| optimizer::build(job.optimizer, group)).collect()
}

/// `training_step(model, inputs)` and what the loop makes of its loss.
fn training_step(context: &Rc<Context>, recipe: &dyn Recipe, pass: u64, variables: &mut Variables) {
    recipe.prepare_inputs(pass);
    context.phase(PhaseKind::Forward);
    let loss = recipe.compute_loss(pass);
    context.phase(PhaseKind::Between);
    let Some(mut loss) = loss else { return };
    if recipe.divides_loss() {
        loss = loss.div_scalar();
    }
    context.phase(PhaseKind::Backward);
    {
        let scaled = loss.div_scalar();
        scaled.backward();
    }
    context.phase(PhaseKind::Between);
    let tr_loss_step = loss.detach();
    drop(loss);
    let loss = &*variables.tr_loss_step.insert(tr_loss_step);
    loss.map("ne.Tensor", DType::Bool);
    let size = loss.unary("abs.default", DType::Float32);
    let _is_infinite = size.map("eq.Scalar", DType::Bool);
}

/// Clipping and the optimizer's step.
fn update(
    context: &Rc<Context>,
    parameters: &[Tensor],
    optimizers: &mut [Box<dyn Optimizer>],
    variables: &mut Variables,
) {
    // Without clipping the norm is taken all the same, to be logged.
    context.phase(PhaseKind::Clip);
    variables.grad_norm = optimizer::clip_grad_norm(parameters);
    context.phase(PhaseKind::Between);
    context.phase(PhaseKind::Optimizer);
    optimizers.iter_mut().for_each(|optimizer| optimizer.step());
    context.phase(PhaseKind::Between);
}
