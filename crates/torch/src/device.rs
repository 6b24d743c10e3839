//! Devices: their names, memory and random numbers.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use crate::error::TorchError;
use crate::sys::Torch;
use crate::tensor::Tensor;

/// `c10::DeviceType`.
const CPU: i32 = 0;
const CUDA: i32 = 1;

/// Where a tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// The host's memory and processors.
    Cpu,
    /// A CUDA device by its index.
    Cuda(u8),
}

impl Device {
    pub(crate) fn kind(self) -> i32 {
        match self {
            Self::Cpu => CPU,
            Self::Cuda(_) => CUDA,
        }
    }

    /// The CPU has none, for which PyTorch writes -1.
    pub(crate) fn index(self) -> i32 {
        match self {
            Self::Cpu => -1,
            Self::Cuda(index) => i32::from(index),
        }
    }

    pub(crate) fn of_numbers(kind: i32, index: i32) -> Self {
        if kind == CUDA { Self::Cuda(u8::try_from(index).unwrap_or_default()) } else { Self::Cpu }
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for Device {
    type Err = TorchError;

    /// `cpu`, `cuda`, `cuda:1`.
    fn from_str(text: &str) -> Result<Self, TorchError> {
        let unknown = || TorchError::setup(format!("no device is called `{text}`")).hinted("cpu, cuda or cuda:0");
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", index)) => {
                Ok(Self::Cuda(index.parse().ok().filter(|index| *index < 128).ok_or_else(unknown)?))
            }
            _ => Err(unknown()),
        }
    }
}

/// What the caching allocator of a CUDA device says. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In live blocks now.
    pub allocated: u64,
    /// In live blocks at most, since the start or the last `reset_peak`.
    pub peak_allocated: u64,
    /// In segments taken from the driver now.
    pub reserved: u64,
    /// In segments at most.
    pub peak_reserved: u64,
    /// How often the cache was given up to serve a request.
    pub retries: u64,
    /// How many requests failed.
    pub out_of_memory: u64,
}

impl Torch {
    /// What the caching allocator of a CUDA device says of itself.
    ///
    /// # Errors
    /// On the CPU, which has no such allocator, and before the device is initialised.
    pub fn memory(&self, device: Device) -> Result<DeviceMemory, TorchError> {
        let figures = self.memory_figures(on_cuda(device)?)?.map(|figure| u64::try_from(figure).unwrap_or_default());
        let [allocated, peak_allocated, reserved, peak_reserved, retries, out_of_memory] = figures;
        Ok(DeviceMemory { allocated, peak_allocated, reserved, peak_reserved, retries, out_of_memory })
    }

    /// From here on peaks count anew.
    ///
    /// # Errors
    /// As [`Torch::memory`].
    pub fn reset_peak(&self, device: Device) -> Result<(), TorchError> {
        self.reset_peak_of(on_cuda(device)?)
    }

    /// The state of a device's random number generator: bytes on the CPU, to be kept with a checkpoint.
    ///
    /// # Errors
    /// When the device is not initialised.
    pub fn random_state(&'static self, device: Device) -> Result<Tensor, TorchError> {
        Ok(Tensor::owning(self, self.random_state_of(device)?))
    }

    /// Goes on from a state that [`Torch::random_state`] gave.
    ///
    /// # Errors
    /// When it is no such state.
    pub fn set_random_state(&self, device: Device, state: &Tensor) -> Result<(), TorchError> {
        self.set_random_state_of(device, state.handle())
    }
}

fn on_cuda(device: Device) -> Result<Device, TorchError> {
    match device {
        Device::Cuda(_) => Ok(device),
        Device::Cpu => Err(TorchError::setup("the CPU has no caching allocator to ask")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_written_as_pytorch_writes_them() {
        for text in ["cpu", "cuda:0", "cuda:7"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:300", "cpu:0", "mps"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }
}
