//! The state of every rank's random number generators in a checkpoint, which rank 0 writes.

use std::collections::BTreeMap;

use tonnage_torch::{Device, ScalarType, Tensor, Torch};

use crate::error::TrainError;
use crate::ranks::Ranks;

/// States by rank; of the device none on the CPU.
pub(crate) struct Generators {
    cpu: Vec<Vec<u8>>,
    device: Vec<Vec<u8>>,
}

/// Rank 0's have the names that the only process's have.
fn state_name(kind: &str, rank: usize) -> String {
    if rank == 0 { format!("random.{kind}") } else { format!("random.{kind}.{rank}") }
}

impl Generators {
    /// Those of all ranks.
    pub fn gather_states(torch: &'static Torch, device: Device, ranks: &dyn Ranks) -> Result<Self, TrainError> {
        let cpu = ranks.gather(&torch.random_state(Device::Cpu)?.to_bytes()?)?;
        let device = match device {
            Device::Cpu => Vec::new(),
            device => ranks.gather(&torch.random_state(device)?.to_bytes()?)?,
        };
        Ok(Self { cpu, device })
    }

    /// As tensors with their names.
    pub fn tensors(&self, torch: &'static Torch) -> Result<Vec<(String, Tensor)>, TrainError> {
        let mut tensors = Vec::new();
        for (kind, states) in [("cpu", &self.cpu), ("device", &self.device)] {
            for (rank, state) in states.iter().enumerate() {
                let sizes = [i64::try_from(state.len()).unwrap_or(i64::MAX)];
                tensors.push((state_name(kind, rank), torch.tensor_of_bytes(state, &sizes, ScalarType::Uint8)?));
            }
        }
        Ok(tensors)
    }
}

impl Generators {
    /// Makes the first rank's the state of this process.
    pub fn restore(&self, torch: &'static Torch, device: Device) -> Result<(), TrainError> {
        let mut tensors = self.tensors(torch)?.into_iter().collect();
        Generator::take_states(&mut tensors, 0)?.restore(torch, device)
    }
}

/// One rank's, taken out of the tensors of a checkpoint.
pub(super) struct Generator {
    cpu: Tensor,
    device: Option<Tensor>,
}

impl Generator {
    /// Those of `rank`; those of the others are taken out and dropped.
    pub fn take_states(tensors: &mut BTreeMap<String, Tensor>, rank: u64) -> Result<Self, TrainError> {
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        let (cpu, device) = (tensors.remove(&state_name("cpu", rank)), tensors.remove(&state_name("device", rank)));
        tensors.retain(|name, _| !name.starts_with("random."));
        let missing = || TrainError::Vocabulary(format!("the checkpoint has no `{}`", state_name("cpu", rank)));
        Ok(Self { cpu: cpu.ok_or_else(missing)?, device })
    }

    /// Makes it the state of this process.
    pub fn restore(&self, torch: &'static Torch, device: Device) -> Result<(), TrainError> {
        torch.set_random_state(Device::Cpu, &self.cpu)?;
        if let Some(state) = self.device.as_ref().filter(|_| device != Device::Cpu) {
            torch.set_random_state(device, state)?;
        }
        Ok(())
    }
}
