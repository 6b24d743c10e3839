//! Sign-SGD of an embedding table of which a batch touches few rows (HRM's `CastedSparseEmbeddingSignSGD_Distributed`): every rank
//! gathers the rows and gradients of all, and makes the same step.

use std::collections::BTreeSet;

use tonnage_torch::{Argument, Device, Tensor, Torch, TorchError, operator};

use crate::ranks::Ranks;

/// A table, and what a forward pass read of it.
#[derive(Clone)]
pub struct PuzzleTable {
    /// [puzzles, width]
    pub weights: Tensor,
    /// [rows, width]: the batch's rows, the leaf that gradients flow into
    pub local_weights: Tensor,
    /// `[rows]`, int32: the batch's puzzles
    pub local_ids: Tensor,
}

/// Settings with the defaults of HRM's optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SparseSignSgdOptions {
    /// `lr`: how far each number of a touched row goes.
    pub learning_rate: f64,
    /// `weight_decay`: touched rows shrink by it times the learning rate.
    pub weight_decay: f64,
    /// All rows of a batch are of different puzzles, which is not looked up: a phantom GPU has no numbers to look at.
    pub takes_ids_as_distinct: bool,
}

impl Default for SparseSignSgdOptions {
    fn default() -> Self {
        Self { learning_rate: 1e-3, weight_decay: 1e-2, takes_ids_as_distinct: false }
    }
}

/// The optimizer of a puzzle table. It keeps nothing from step to step.
pub struct SparseSignSgd {
    torch: &'static Torch,
    table: PuzzleTable,
    options: SparseSignSgdOptions,
}

impl SparseSignSgd {
    /// Over one table.
    pub fn new(torch: &'static Torch, table: PuzzleTable, options: SparseSignSgdOptions) -> Self {
        Self { torch, table, options }
    }

    /// The learning rate of the next step.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.options.learning_rate = rate;
    }

    /// `zero_grad()`
    ///
    /// # Errors
    /// When PyTorch refuses it.
    pub fn zero_grad(&self) -> Result<(), TorchError> {
        self.table.local_weights.set_grad(None)
    }

    /// Moves the rows that the batches of all ranks read, each by the sign of the sum of its gradients.
    ///
    /// # Errors
    /// PyTorch's, and when a rank has gone.
    pub fn step(&mut self, ranks: &dyn Ranks) -> Result<(), TorchError> {
        let Some(local_weights_grad) = self.table.local_weights.grad()? else { return Ok(()) };
        let SparseSignSgdOptions { learning_rate, weight_decay, .. } = self.options;
        let (torch, weights) = (self.torch, &self.table.weights);
        let _no_grad = torch.no_grad();
        let (gradient, all_ids) = self.all_ranks(local_weights_grad, ranks)?;
        let (grad_ids, inverse) = self.unique_ids(&all_ids)?;
        let width = gradient.sizes().last().copied().unwrap_or_default();
        let sizes = Argument::Ints([grad_ids.numel(), width].into_iter().collect());
        let grad = torch.call(
            operator!("zeros"),
            &[sizes, gradient.scalar_type()?.into(), Argument::None, gradient.device().into()],
        )?;
        let grad = grad.tensor()?;
        let places = torch.call(operator!("unsqueeze"), &[(&inverse).into(), Argument::Int(-1)])?.tensor()?;
        let places = torch.call(operator!("expand"), &[(&places).into(), [-1, width].into()])?.tensor()?;
        torch.call(
            operator!("scatter_add_"),
            &[(&grad).into(), Argument::Int(0), (&places).into(), (&gradient).into()],
        )?;
        let rows = || Argument::optional_tensors([Some(&grad_ids)]);
        let touched = torch.call(operator!("index", "Tensor"), &[weights.into(), rows()])?.tensor()?;
        torch.call(operator!("mul_", "Scalar"), &[(&touched).into(), (1.0 - learning_rate * weight_decay).into()])?;
        {
            let sign = torch.call(operator!("sign"), &[(&grad).into()])?.tensor()?;
            torch.call(operator!("add_", "Tensor"), &[(&touched).into(), (&sign).into(), (-learning_rate).into()])?;
        }
        torch.call(operator!("index_put_"), &[weights.into(), rows(), (&touched).into()])?;
        Ok(())
    }

    /// Gradients and rows of all ranks; this rank's own, where it is the only one.
    fn all_ranks(&self, gradient: Tensor, ranks: &dyn Ranks) -> Result<(Tensor, Tensor), TorchError> {
        let ids = &self.table.local_ids;
        let Some(group) = ranks.group() else { return Ok((gradient, ids.clone())) };
        let empty = |local: &Tensor| {
            let mut sizes = local.sizes().to_vec();
            sizes[0] *= i64::try_from(ranks.count()).unwrap_or(i64::MAX);
            let sizes = Argument::Ints(sizes.into_iter().collect());
            let arguments = [sizes, local.scalar_type()?.into(), Argument::None, local.device().into()];
            self.torch.call(operator!("empty", "memory_format"), &arguments)?.tensor()
        };
        let (all_weights_grad, all_ids) = (empty(&gradient)?, empty(ids)?);
        group.all_gather(&all_weights_grad, &gradient)?;
        group.all_gather(&all_ids, ids)?;
        Ok((all_weights_grad, all_ids))
    }

    /// `all_ids.unique(return_inverse=True)`; like it, this waits for the device.
    fn unique_ids(&self, ids: &Tensor) -> Result<(Tensor, Tensor), TorchError> {
        let device = ids.device();
        let ids: Vec<i32> = if self.options.takes_ids_as_distinct {
            (0..i32::try_from(ids.numel()).unwrap_or(i32::MAX)).collect()
        } else {
            ids.to_device(Device::Cpu)?.to_vec()?
        };
        let unique: Vec<i32> = ids.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |id: &i32| unique.binary_search(id).map_or(0, |at| i64::try_from(at).unwrap_or_default());
        let inverse: Vec<i64> = ids.iter().map(place).collect();
        let count = |length: usize| [i64::try_from(length).unwrap_or(i64::MAX)];
        Ok((
            self.torch.tensor(&unique, &count(unique.len()))?.to_device(device)?,
            self.torch.tensor(&inverse, &count(inverse.len()))?.to_device(device)?,
        ))
    }
}
