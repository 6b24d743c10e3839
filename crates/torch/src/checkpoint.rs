//! `torch.utils.checkpoint.checkpoint(function, use_reentrant=False)`: what a function saves for backward is not kept; backward runs
//! it again, with the random numbers and autocast it had, until all is there.

use crate::device::Device;
use crate::error::TorchError;
use crate::sys::Torch;

struct Scope<'a>(&'a Torch);

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.0.end_checkpoint();
    }
}

impl Torch {
    /// Runs `function` now, and again in backward. `device` is where its tensors lie: that generator's state is restored.
    ///
    /// `function` must pass errors on: an error of the kind [`Stopped`](crate::ErrorKind::Stopped) ends its second run early. It may be
    /// run on another thread, as PyTorch's backward of CUDA tensors is.
    ///
    /// # Errors
    /// Those of `function`.
    pub fn checkpoint<R, F>(&self, device: Device, function: F) -> Result<R, TorchError>
    where
        F: Fn() -> Result<R, TorchError> + Send + Clone + 'static,
    {
        self.run_checkpoint(device, function, false)
    }

    /// The same of a function that belongs to this thread: `backward` must be asked for by this thread too, which waits while PyTorch
    /// runs it elsewhere.
    ///
    /// # Errors
    /// Those of `function`.
    pub fn checkpoint_here<R, F>(&self, device: Device, function: F) -> Result<R, TorchError>
    where
        F: Fn() -> Result<R, TorchError> + Clone + 'static,
    {
        self.run_checkpoint(device, function, true)
    }

    fn run_checkpoint<R, F>(&self, device: Device, function: F, is_own: bool) -> Result<R, TorchError>
    where
        F: Fn() -> Result<R, TorchError> + Clone + 'static,
    {
        if !self.is_grad_enabled() {
            return function();
        }
        let again = function.clone();
        self.begin_checkpoint(device, Box::new(move || again().map(drop)), is_own)?;
        let scope = Scope(self);
        let result = function();
        drop(scope);
        // Nothing that the first run captured outlives it; the second run has its own.
        drop(function);
        result
    }
}
