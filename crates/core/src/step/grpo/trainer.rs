//! `GRPOTrainer`: its models, and the batches it generates.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::building::Mode;
use crate::job::{Baseline, Framework, GrpoSpec, JobSpec};
use crate::model::family::Model;
use crate::op::TokenOutputs;
use crate::tensor::{Context, Tensor};

use super::batch::Batch;
use super::judge::Judge;
use super::loss::compute_loss;
use super::rloo::compute_rloo_loss;
use crate::step::gathered::Processes;
use crate::step::prepared::Prepared;
use crate::step::trainer::Recipe;
use crate::step::wrapped::Wrapped;

/// What the policy's head returns beside log-probabilities.
pub(super) const HEAD_OUTPUTS: TokenOutputs = TokenOutputs { entropy: true, mean_logits: false, is_top1: false };

/// A trainer and the models it holds.
pub(super) struct Trainer<'a> {
    pub job: &'a JobSpec,
    pub spec: &'a GrpoSpec,
    pub context: &'a Rc<Context>,
    /// `self.model`, without the wrapper.
    pub model: Rc<dyn Model>,
    pub wrapped: Wrapped<'a>,
    pub processes: Processes,
    /// The policy's switches.
    pub mode: Rc<Mode>,
    pub reference: Option<Wrapped<'a>>,
    pub judge_model: Option<Judge>,
    pub parameters: Vec<Tensor>,
    /// Adapters, each layer's two after one another.
    pub adapters: Vec<Tensor>,
    /// The optimizer step whose weights the engine has.
    pub last_loaded_step: Cell<Option<u64>>,
    /// `_buffered_inputs`, before they are split into views: each pass takes its own.
    pub buffered_inputs: RefCell<Option<Batch>>,
}

impl Trainer<'_> {
    /// `self.model`, as accelerate has prepared it.
    pub(super) fn prepared_policy(&self) -> Prepared<'_> {
        let autocast = self.job.precision.autocast_dtype();
        Prepared { context: self.context, model: self.model.as_ref(), autocast, head_outputs: HEAD_OUTPUTS }
    }

    /// Whether the loop is `tonnage train`'s and the policy's positions are rows of a table.
    pub(super) fn makes_positions(&self) -> bool {
        self.job.framework == Framework::Loop && self.job.model.facts().has_position_table()
    }
}

impl Recipe for Trainer<'_> {
    fn wrapped(&self) -> &Wrapped<'_> {
        &self.wrapped
    }

    /// `_prepare_inputs`: generates when the buffered completions are used up.
    fn prepare_inputs(&self, pass: u64) {
        if !pass.is_multiple_of(self.generate_every()) {
            return;
        }
        let rows = self.job.micro_batch_size.saturating_mul(self.spec.steps_per_generation);
        let Some(mut generation_batch) = self.generate_and_score(rows, pass) else { return };
        generation_batch = generation_batch.shuffled();
        let used_up = self.buffered_inputs.replace(Some(generation_batch));
        drop(used_up);
    }

    /// Passes after which new completions are generated.
    fn generate_every(&self) -> u64 {
        self.spec.steps_per_generation.saturating_mul(self.spec.num_iterations).max(1)
    }

    fn compute_loss(&self, _pass: u64) -> Option<Tensor> {
        let buffered = self.buffered_inputs.borrow();
        let inputs = buffered.as_ref()?.part_of(self.spec.steps_per_generation);
        match self.spec.baseline {
            Baseline::Group => compute_loss(self, &inputs),
            Baseline::LeaveOneOut => compute_rloo_loss(self, &inputs),
        }
    }

    fn divides_loss(&self) -> bool {
        self.spec.baseline == Baseline::LeaveOneOut
    }
}
