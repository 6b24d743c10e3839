//! A training step of the hierarchical reasoning model: one segment, that is one forward pass from the carry of the
//! last, backward, and both optimizers.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::JobSpec;
use crate::model::hrm::{ActLossHead, Batch, Carry, Results};
use crate::op::{UNTOLD, full, stack_scalars};
use crate::optimizer::{self, Optimizer, SparseSignSgd};
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::repetition::Repetition;
use super::settled::Settled;

/// Trains; steps that only repeat are left out of a long job.
pub(super) fn train_hrm(
    job: &JobSpec,
    context: &Rc<Context>,
    model: &ActLossHead,
    parameters: &[Tensor],
) -> Repetition {
    let mut optimizers = Optimizers {
        emb_optimizer: model.puzzle_emb().map(|table| SparseSignSgd::new(table, job.parallel.world_size)),
        optimizer: optimizer::build(job, parameters),
    };
    // What lives from one step to the next, until the next forward pass has returned.
    let mut carry: Option<Carry> = None;
    let mut results: Option<Results> = None;
    let mut run = Repetition::begin(1);
    let mut settled = Settled::new(job, context);
    for step in 1..=job.steps {
        if !settled.begin_next(&mut run, (step, u64::from(job.steps - step + 1))) {
            break;
        }
        context.phase(PhaseKind::Input);
        let batch = load_batch(job, context);
        let current = carry.get_or_insert_with(|| model.initial_carry(&batch));
        context.phase(PhaseKind::Forward);
        let (new_carry, new_results) = model.forward(current, &batch, false);
        carry = Some(new_carry);
        let results = results.insert(new_results);
        context.phase(PhaseKind::Backward);
        results.loss.mul_scalar(UNTOLD).backward();
        optimizers.step_all(context, parameters);
        context.phase(PhaseKind::Between);
        drop(stack_scalars(&results.metrics));
    }
    context.end();
    settled.close(run)
}

fn load_batch(job: &JobSpec, context: &Rc<Context>) -> Batch {
    let _category = context.enter_category(Category::Input);
    let (rows, tokens) = (job.micro_batch_size, job.seq_len);
    let load = |sizes: &[u64]| full(context, "_to_copy.default", sizes, DType::Int32);
    Batch { inputs: load(&[rows, tokens]), labels: load(&[rows, tokens]), puzzle_identifiers: load(&[rows]) }
}

/// The optimizer of the puzzle table, where there is one, and that of the weights.
struct Optimizers {
    emb_optimizer: Option<SparseSignSgd>,
    optimizer: Box<dyn Optimizer>,
}

impl Optimizers {
    /// Both steps, each with its `zero_grad`.
    fn step_all(&mut self, context: &Rc<Context>, parameters: &[Tensor]) {
        if let Some(emb_optimizer) = &mut self.emb_optimizer {
            context.phase(PhaseKind::EmbOptimizer);
            emb_optimizer.step();
            emb_optimizer.zero_grad();
        }
        context.phase(PhaseKind::Optimizer);
        self.optimizer.step();
        parameters.iter().for_each(|parameter| parameter.set_grad(None));
    }
}
