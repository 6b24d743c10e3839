//! Devices, random numbers and threads.

use super::{Handle, Torch};
use crate::device::Device;
use crate::error::TorchError;

impl Torch {
    /// How many CUDA devices it can use.
    ///
    /// # Errors
    /// When the driver cannot say.
    pub fn cuda_devices(&self) -> Result<usize, TorchError> {
        // SAFETY: no arguments.
        usize::try_from(unsafe { (self.functions.tonnage_cuda_devices)() }).map_err(|_| self.error())
    }

    /// Makes a kind of device ready, as the first tensor on it does.
    ///
    /// # Errors
    /// PyTorch's: no driver, no device.
    pub fn initialise(&self, device: Device) -> Result<(), TorchError> {
        if device == Device::Cpu {
            return Ok(());
        }
        // SAFETY: a number.
        self.check(unsafe { (self.functions.tonnage_init_device)(device.kind()) })
    }

    /// Waits until a device has done all its work.
    ///
    /// # Errors
    /// Of work that failed on the device.
    pub fn synchronize(&self, device: Device) -> Result<(), TorchError> {
        // SAFETY: numbers.
        self.check(unsafe { (self.functions.tonnage_synchronize)(device.kind(), device.index()) })
    }

    /// Seeds the generators of all devices, as `torch.manual_seed` does.
    ///
    /// # Errors
    /// When a device cannot be seeded.
    pub fn seed(&self, seed: u64) -> Result<(), TorchError> {
        // SAFETY: a number.
        self.check(unsafe { (self.functions.tonnage_seed)(seed) })
    }

    pub(crate) fn random_state_of(&self, device: Device) -> Result<Handle, TorchError> {
        // SAFETY: numbers.
        self.handle(unsafe { (self.functions.tonnage_random_state)(device.kind(), device.index()) })
    }

    pub(crate) fn set_random_state_of(&self, device: Device, state: Handle) -> Result<(), TorchError> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.functions.tonnage_set_random_state)(device.kind(), device.index(), state.0) })
    }

    /// Threads that an operator may use.
    pub fn threads(&self) -> i32 {
        // SAFETY: no arguments.
        unsafe { (self.functions.tonnage_threads)() }
    }

    /// At least one.
    pub fn set_threads(&self, count: i32) {
        // SAFETY: a number.
        unsafe { (self.functions.tonnage_set_threads)(count.max(1)) }
    }

    /// As `torch.use_deterministic_algorithms`: an operator that cannot is an error.
    pub fn set_deterministic(&self, on: bool) {
        // SAFETY: a number.
        unsafe { (self.functions.tonnage_set_deterministic)(i32::from(on)) }
    }
}
