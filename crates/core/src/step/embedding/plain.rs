//! The loss in a loop of one's own: a batch comes to the device and stays there, with what its forward pass left in it, until the next.

use std::rc::Rc;

use crate::optimizer::GradScaler;
use crate::step::plain_loop::{run_backward, run_plain_loop};
use crate::step::repetition::Repetition;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;

use super::Losses;
use super::encode::Features;

/// Trains without a trainer.
pub(super) fn train_plainly(losses: &Losses, context: &Rc<Context>, parameters: &[Tensor]) -> Repetition {
    let mut variables = Variables::default();
    run_plain_loop(losses.job, context, (parameters, None), &mut |scaler| variables.run_pass(losses, context, scaler))
}

/// Python variables that live from one pass to the next.
#[derive(Default)]
struct Variables {
    columns: Vec<Features>,
    loss: Option<Tensor>,
}

impl Variables {
    fn run_pass(&mut self, losses: &Losses, context: &Rc<Context>, scaler: Option<&mut GradScaler>) -> Option<()> {
        let columns = losses.make_columns();
        let before = std::mem::replace(&mut self.columns, columns);
        drop(before);
        context.phase(PhaseKind::Forward);
        let loss = {
            let _autocast = context.autocast(losses.job.precision.autocast_dtype());
            losses.loss(&mut self.columns)?
        };
        let loss = &mut *self.loss.insert(loss);
        if losses.job.gradient_accumulation_steps > 1 {
            *loss = loss.div_scalar(losses.job.gradient_accumulation_steps as f64);
        }
        context.phase(PhaseKind::Backward);
        run_backward(loss, scaler);
        Some(())
    }
}
