//! A training step of the reasoning model, statement by statement that of core's `step/hrm.rs`: one segment from where the last one
//! ended, backward, and both optimizers.

use tonnage_torch::{Argument, Device, ScalarType, Torch, TorchError, operator};

use super::model::{Puzzles, ReasoningModel, Segment, Thoughts};
use crate::error::TrainError;
use crate::optimizer::{Optimizer, SparseSignSgd};
use crate::ranks::Ranks;

/// A training of one process, or of one of several ranks, whose gradients are summed as HRM's loop does it.
pub struct SegmentTrainer<'a> {
    torch: &'static Torch,
    model: &'a ReasoningModel,
    ranks: &'a dyn Ranks,
    emb_optimizer: Option<SparseSignSgd>,
    optimizer: Box<dyn Optimizer>,
    /// Rows of a step over all ranks, which its loss is divided by.
    rows: u64,
    // What lives from one step to the next, until the next forward pass has returned.
    carry: Option<Thoughts>,
    segment: Option<Segment>,
}

impl<'a> SegmentTrainer<'a> {
    /// Of a model with the optimizer of its weights and, where it has a puzzle table, that of the table; `rows` are those of a rank. What
    /// the model holds becomes rank 0's.
    ///
    /// # Errors
    /// When a rank has gone.
    pub fn new(
        torch: &'static Torch,
        model: &'a ReasoningModel,
        emb_optimizer: Option<SparseSignSgd>,
        optimizer: Box<dyn Optimizer>,
        rows: u64,
        ranks: &'a dyn Ranks,
    ) -> Result<Self, TrainError> {
        if let Some(group) = ranks.group() {
            let _no_grad = torch.no_grad();
            let named: Vec<_> = model.named().into_iter().map(|(_, tensor)| tensor).collect();
            group.broadcast_each(&named)?;
        }
        let rows = rows.saturating_mul(ranks.count());
        Ok(Self { torch, model, ranks, emb_optimizer, optimizer, rows, carry: None, segment: None })
    }

    /// Learning rates of the next step: of the weights, and of the puzzle table.
    pub fn set_learning_rates(&mut self, weights: f64, table: f64) {
        self.optimizer.set_learning_rate(weights);
        if let Some(emb_optimizer) = &mut self.emb_optimizer {
            emb_optimizer.set_learning_rate(table);
        }
    }

    /// What the next segment begins with; `None` before the first.
    pub fn thoughts(&self) -> Option<&Thoughts> {
        self.carry.as_ref()
    }

    /// Goes on with thoughts of a checkpoint.
    pub fn set_thoughts(&mut self, thoughts: Thoughts) {
        self.carry = Some(thoughts);
    }

    /// The optimizer of the weights; that of the puzzle table keeps nothing.
    pub fn optimizer(&self) -> &dyn Optimizer {
        &*self.optimizer
    }

    /// To restore its state.
    pub fn optimizer_mut(&mut self) -> &mut dyn Optimizer {
        &mut *self.optimizer
    }

    /// One segment, its gradients and both updates; the metrics of this rank's rows, in the order of [`Segment::METRICS`].
    ///
    /// # Errors
    /// PyTorch's, out of memory above all, and when a rank has gone.
    pub fn step(&mut self, puzzles: &Puzzles) -> Result<Vec<f64>, TrainError> {
        let current = match self.carry.take() {
            Some(carry) => carry,
            None => self.model.initial_carry(puzzles)?,
        };
        let (carry, segment) = self.model.forward(&current, puzzles, false)?;
        self.carry = Some(carry);
        drop(current);
        let segment = self.segment.insert(segment);
        {
            let share = Argument::from(1.0 / self.rows.max(1) as f64);
            let loss = self.torch.call(operator!("mul", "Scalar"), &[(&segment.loss).into(), share])?.tensor()?;
            self.torch.backward(&loss)?;
        }
        if let Some(group) = self.ranks.group() {
            for parameter in self.optimizer.parameters() {
                parameter.grad()?.map_or(Ok(()), |gradient| group.all_reduce(&gradient))?;
            }
        }
        if let Some(emb_optimizer) = &mut self.emb_optimizer {
            emb_optimizer.step(self.ranks)?;
            emb_optimizer.zero_grad()?;
        }
        self.optimizer.step()?;
        self.optimizer.zero_grad()?;
        Ok(metrics(self.torch, segment)?)
    }
}

/// `torch.stack(metrics).cpu()`
fn metrics(torch: &'static Torch, segment: &Segment) -> Result<Vec<f64>, TorchError> {
    let stacked = torch.call(operator!("stack"), &[segment.metrics.as_slice().into()])?.tensor()?;
    let here = stacked.to_device(Device::Cpu)?;
    let exact = torch.call(operator!("to", "dtype"), &[(&here).into(), ScalarType::Float64.into()])?.tensor()?;
    exact.to_vec()
}
