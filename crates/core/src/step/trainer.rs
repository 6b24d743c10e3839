//! Hugging Face's `Trainer` (transformers 5.17, trainer.py, `_run_epoch`), from the first step to the last; what is a
//! trainer's own is its [`Recipe`]. The names of variables that live on are Python's.

use std::rc::Rc;

use crate::dtype::DType;
use crate::op::{ReduceKind, full};
use crate::optimizer::{self, Optimizer};
use crate::spec::JobSpec;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::schedule::{Passes, Schedule, Skip};
use super::train::Repetition;

/// What one trainer does its own way.
pub(super) trait Recipe {
    /// `get_batch_samples`: the batches of an optimizer step come to the device.
    fn get_batch_samples(&self) {}

    /// `_prepare_inputs`, before pass number `pass`.
    fn prepare_inputs(&self, _pass: u64) {}

    /// Every so many passes `prepare_inputs` generates anew.
    fn generate_every(&self) -> u64 {
        u64::MAX
    }

    /// `compute_loss(model, inputs)`; `None` where there are no inputs.
    fn compute_loss(&self, pass: u64) -> Option<Tensor>;

    /// Whether the loop divides the loss by the number of passes, as where the loss is a mean of its own batch.
    fn divides_loss(&self) -> bool {
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
    let passes = Passes { of_step: job.gradient_accumulation_steps, generate_every: recipe.generate_every() };
    let mut schedule = Schedule::new(passes);
    let mut run = Repetition { steps: 0, passes: passes.of_step };
    let mut step = 1;
    while step <= u64::from(job.steps) && !context.has_failed() {
        run.steps += 1;
        let begun = context.phases();
        recipe.get_batch_samples();
        run.passes = run.passes.min(run_passes(context, recipe, &mut schedule, (passes, step), &mut variables));
        variables.grad_norm = None;
        update(context, parameters, &mut optimizers, &mut variables);
        let left_out = schedule.after_step(step, Schedule::is_long(context.events()));
        if let Some(steps @ 1..) = left_out {
            context.count_phases_again(begun..context.phases(), steps);
        }
        step += 1 + left_out.unwrap_or(u64::from(job.steps));
        context.begin_step(u32::try_from(step).unwrap_or(u32::MAX).min(job.steps.saturating_add(1)));
        context.phase(PhaseKind::Between);
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
        tr_loss.reduce_all("mean.default", ReduceKind::Mean, DType::Float32);
    }
    drop(variables);
    recipe.end();
    context.end();
    run
}

/// The passes of an optimizer step; how many were run.
fn run_passes(
    context: &Rc<Context>,
    recipe: &dyn Recipe,
    schedule: &mut Schedule,
    (passes, step): (Passes, u64),
    variables: &mut Variables,
) -> u64 {
    schedule.begin_step();
    let (mut at, mut ran) = (0, 0);
    // Where the phases of the pass, and of its cycle of generation, begin.
    let mut cycle_begun = context.phases();
    while at < passes.of_step && !context.has_failed() {
        let pass = (step - 1).saturating_mul(passes.of_step).saturating_add(at);
        let begun = context.phases();
        if pass.is_multiple_of(passes.generate_every) {
            cycle_begun = begun;
        }
        training_step(context, recipe, pass, variables);
        ran += 1;
        at += 1;
        let (phases, times) = match schedule.after_pass(pass, at - 1, Schedule::is_long(context.events())) {
            Skip::Nothing => continue,
            Skip::Passes(skipped) => {
                at += skipped;
                (begun, skipped)
            }
            Skip::Cycles(skipped) => {
                at += skipped * passes.generate_every;
                (cycle_begun, skipped)
            }
        };
        context.count_phases_again(phases..context.phases(), times);
    }
    ran
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
