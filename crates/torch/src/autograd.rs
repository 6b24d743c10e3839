//! Gradients, and the scopes that change what operators record: grad mode and autocast. Scopes end when they are dropped.

use crate::device::Device;
use crate::error::TorchError;
use crate::scalar::ScalarType;
use crate::sys::{AutocastState, Torch};
use crate::tensor::Tensor;

/// `torch.no_grad()` or `torch.enable_grad()`, until it is dropped.
#[must_use = "the scope ends when it is dropped"]
pub struct GradScope<'a> {
    torch: &'a Torch,
    before: bool,
}

impl Drop for GradScope<'_> {
    fn drop(&mut self) {
        self.torch.set_grad_mode(self.before);
    }
}

/// `torch.autocast(...)`, until it is dropped; the outermost scope then gives up the casts that it kept.
#[must_use = "the scope ends when it is dropped"]
pub struct AutocastScope<'a> {
    torch: &'a Torch,
    device: Device,
    before: AutocastState,
}

impl Drop for AutocastScope<'_> {
    fn drop(&mut self) {
        self.torch.leave_autocast(self.device, self.before);
    }
}

impl Torch {
    /// Computes the gradients of a loss of one element, and lets the graph go.
    ///
    /// # Errors
    /// PyTorch's, and those of checkpointed functions that are run again.
    pub fn backward(&self, loss: &Tensor) -> Result<(), TorchError> {
        self.backward_from(loss.handle(), None, false)
    }

    /// Computes gradients from a tensor of any shape, given its own gradient.
    ///
    /// # Errors
    /// As [`Torch::backward`].
    pub fn backward_with(&self, root: &Tensor, gradient: &Tensor, keep_graph: bool) -> Result<(), TorchError> {
        self.backward_from(root.handle(), Some(gradient.handle()), keep_graph)
    }

    /// Whether operators record what backward needs, on this thread.
    pub fn is_grad_enabled(&self) -> bool {
        self.grad_mode()
    }

    /// `torch.no_grad()`.
    pub fn no_grad(&self) -> GradScope<'_> {
        self.with_grad(false)
    }

    /// `torch.set_grad_enabled(on)`.
    pub fn with_grad(&self, on: bool) -> GradScope<'_> {
        let before = self.grad_mode();
        self.set_grad_mode(on);
        GradScope { torch: self, before }
    }

    /// `torch.autocast(device, dtype)`; `None` switches it off inside another scope.
    ///
    /// # Errors
    /// When the device does not know autocast.
    pub fn autocast(&self, device: Device, scalar_type: Option<ScalarType>) -> Result<AutocastScope<'_>, TorchError> {
        let wanted = AutocastState {
            enabled: i32::from(scalar_type.is_some()),
            scalar_type: scalar_type.unwrap_or(ScalarType::Bfloat16) as i32,
            caches: 1,
        };
        let before = self.enter_autocast(device, wanted)?;
        Ok(AutocastScope { torch: self, device, before })
    }
}
