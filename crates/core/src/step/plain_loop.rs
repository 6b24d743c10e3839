//! The loop of scripts that run passes and then an optimizer's step, with nothing between two passes: diffusion's examples and embeddings in a loop of
//! one's own.

use std::rc::Rc;

use crate::job::{JobSpec, keys};
use crate::optimizer::{self, Average, GradScaler, Optimizer};
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::repetition::Repetition;
use super::settled::Settled;

/// Trains: `run_pass` goes from the batch to the end of backward, and gives `None` where it has no loss, which fails the job. What only
/// repeats is left out of a long one.
pub(super) fn run_plain_loop(
    job: &JobSpec,
    context: &Rc<Context>,
    (parameters, mut average): (&[Tensor], Option<Average>),
    run_pass: &mut dyn FnMut(Option<&mut GradScaler>) -> Option<()>,
) -> Repetition {
    let mut optimizer = optimizer::build(job, parameters);
    let mut scaler = job.precision.scales_loss().then(|| GradScaler::new(context));
    let mut run = Repetition::begin(job.gradient_accumulation_steps);
    let mut settled = Settled::new(job, context);
    for step in 1..=job.steps {
        if context.has_failed() || !settled.begin_next(&mut run, (step, u64::from(job.steps - step + 1))) {
            break;
        }
        for pass in 1..=job.gradient_accumulation_steps {
            let left = job.gradient_accumulation_steps - pass;
            let leaves_out = settled.leaves_out_after(pass, left, 1);
            let begun = context.phases();
            context.phase(PhaseKind::Input);
            if run_pass(scaler.as_mut()).is_none() {
                context.fail_unsimulated(&[keys::TASK], || "a pass has no loss".to_owned());
                break;
            }
            if leaves_out {
                run.passes = run.passes.min(pass);
                context.count_phases_again(begun..context.phases(), left);
                break;
            }
        }
        update_parameters(job, context, scaler.as_mut(), (optimizer.as_mut(), parameters));
        if let Some(average) = &mut average {
            context.phase(PhaseKind::Optimizer);
            average.update();
        }
    }
    context.end();
    settled.close(run)
}

/// `loss.backward()`, scaled where fp16 is.
pub(super) fn run_backward(loss: &Tensor, scaler: Option<&mut GradScaler>) {
    match scaler {
        Some(scaler) => scaler.scale(loss).backward(),
        None => loss.backward(),
    }
}

fn update_parameters(
    job: &JobSpec,
    context: &Rc<Context>,
    mut scaler: Option<&mut GradScaler>,
    (optimizer, parameters): (&mut dyn Optimizer, &[Tensor]),
) {
    if job.clip_grad_norm.is_some() {
        context.phase(PhaseKind::Clip);
        if let Some(scaler) = scaler.as_deref_mut() {
            scaler.unscale();
        }
        optimizer::clip_grad_norm(parameters);
    }
    context.phase(PhaseKind::Optimizer);
    match scaler {
        Some(scaler) => {
            scaler.step(optimizer);
            scaler.update();
        }
        None => optimizer.step(),
    }
    context.phase(PhaseKind::ZeroGrad);
    parameters.iter().for_each(|parameter| parameter.set_grad(None));
}
