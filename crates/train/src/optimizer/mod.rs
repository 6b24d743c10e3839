//! Optimizers, one file each, with the operators of `torch.optim` in its order; what a step allocates follows from them.

mod adam;
mod adam_atan2;
mod sgd;
mod sparse_sign_sgd;

pub use adam::{Adam, AdamOptions};
pub use adam_atan2::{AdamAtan2, AdamAtan2Options};
pub use sgd::{Sgd, SgdOptions};
pub use sparse_sign_sgd::{PuzzleTable, SparseSignSgd, SparseSignSgdOptions};

use tonnage_torch::{Tensor, Torch, TorchError};

/// How an optimizer walks over its parameters (`foreach=`, `fused=` of `torch.optim`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// One operator over a list of tensors.
    Foreach,
    /// One kernel for the whole update.
    Fused,
    /// A parameter after the other.
    ForLoop,
}

/// A named tensor of an optimizer's state, as `state_dict()` names it.
pub struct StateEntry<'a> {
    /// The parameter's place among the optimizer's.
    pub parameter: usize,
    /// `exp_avg`, `momentum_buffer`, ...
    pub name: &'static str,
    /// The optimizer's own tensor.
    pub tensor: &'a Tensor,
}

/// Updates parameters by their gradients; those without one are left out of a step.
pub trait Optimizer {
    /// Updates the parameters once.
    ///
    /// # Errors
    /// PyTorch's, out of memory above all: the first step makes the state.
    fn step(&mut self) -> Result<(), TorchError>;

    /// The learning rate of the next step.
    fn set_learning_rate(&mut self, rate: f64);

    /// Takes all gradients away (`zero_grad(set_to_none=True)`).
    ///
    /// # Errors
    /// When PyTorch refuses a gradient.
    fn zero_grad(&self) -> Result<(), TorchError> {
        self.parameters().iter().try_for_each(|parameter| parameter.set_grad(None))
    }

    /// What it updates, in the order it was given.
    fn parameters(&self) -> &[Tensor];

    /// Its state, for a checkpoint: what is not there yet is left out.
    fn state(&self) -> Vec<StateEntry<'_>>;

    /// Goes on from a state that [`Optimizer::state`] gave: a tensor by parameter and name.
    ///
    /// # Errors
    /// When a name or parameter is none of its own.
    fn restore(
        &mut self,
        torch: &'static Torch,
        parameter: usize,
        name: &str,
        tensor: Tensor,
    ) -> Result<(), TorchError>;

    /// Whether its step unscales and skips by itself when it is given a scale (`_step_supports_amp_scaling`).
    fn unscales(&self) -> bool {
        false
    }

    /// One step on gradients that are still scaled: divided by `scale`, skipped where `found_inf` is 1.
    ///
    /// # Errors
    /// PyTorch's.
    fn step_scaled(&mut self, _scale: Option<&Tensor>, _found_inf: &Tensor) -> Result<(), TorchError> {
        self.step()
    }
}
