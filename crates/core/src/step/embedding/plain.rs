//! The loss in a loop of one's own: a batch comes to the device and stays there, with what its forward pass left in it, until the next.

use std::rc::Rc;

use crate::job::JobSpec;
use crate::optimizer::{self, GradScaler};
use crate::step::repetition::Repetition;
use crate::step::settled::{Piece, Settled};
use crate::step::train::{PASSES_RUN, STEPS_RUN};
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::Losses;

/// Trains; what only repeats is left out of a long job.
pub(super) fn train_plainly(losses: &Losses, context: &Rc<Context>, parameters: &[Tensor]) -> Repetition {
    let job = losses.job;
    let mut optimizer = optimizer::build(job.optimizer, parameters);
    let mut scaler = job.precision.scales_loss().then(|| GradScaler::new(context));
    let mut run = Repetition::begin(job.gradient_accumulation_steps);
    let mut settled = Settled::new(job, context);
    let mut variables = Variables::default();
    for step in 1..=job.steps {
        if settled.is_enough(Piece::Step, u64::from(job.steps - step + 1)) && step > STEPS_RUN {
            break;
        }
        run.steps = step;
        settled.begin_step();
        context.begin_step(step);
        for pass in 1..=job.gradient_accumulation_steps {
            let left = job.gradient_accumulation_steps - pass;
            let leaves_out = settled.is_enough(Piece::Pass, left) && pass >= PASSES_RUN;
            let begun = context.phases();
            variables.run_pass(losses, context, scaler.as_mut());
            if leaves_out {
                run.passes = run.passes.min(pass);
                context.count_phases_again(begun..context.phases(), left);
                break;
            }
        }
        update_parameters(job, context, scaler.as_mut(), (optimizer.as_mut(), parameters));
    }
    context.end();
    settled.close(run)
}

/// Python variables that live from one pass to the next.
#[derive(Default)]
struct Variables {
    columns: Option<super::Columns>,
    loss: Option<Tensor>,
}

impl Variables {
    fn run_pass(&mut self, losses: &Losses, context: &Rc<Context>, scaler: Option<&mut GradScaler>) {
        context.phase(PhaseKind::Input);
        let columns = &mut *self.columns.insert(losses.make_columns());
        context.phase(PhaseKind::Forward);
        let loss = {
            let _autocast = context.autocast(losses.job.precision.autocast_dtype());
            losses.loss(columns)
        };
        let Some(loss) = loss else { return };
        let loss = &mut *self.loss.insert(loss);
        if losses.job.gradient_accumulation_steps > 1 {
            *loss = loss.div_scalar(losses.job.gradient_accumulation_steps as f64);
        }
        context.phase(PhaseKind::Backward);
        match scaler {
            Some(scaler) => scaler.scale(loss).backward(),
            None => loss.backward(),
        }
    }
}

fn update_parameters(
    job: &JobSpec,
    context: &Rc<Context>,
    mut scaler: Option<&mut GradScaler>,
    (optimizer, parameters): (&mut dyn optimizer::Optimizer, &[Tensor]),
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
