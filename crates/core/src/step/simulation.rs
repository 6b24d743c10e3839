//! What simulating a job gives.

use crate::building::BuildError;
use crate::host::HostMemory;
use crate::trace::Trace;
use crate::work::Work;

use super::repetition::Repetition;

/// Why a job cannot be simulated.
pub type SimulateError = BuildError;

/// A simulated job.
#[non_exhaustive]
pub struct Simulation {
    /// Every allocation and free.
    pub trace: Trace,
    /// Parameters of the model, tied ones once, adapters included.
    pub parameter_count: u64,
    /// Parameters that are trained.
    pub trainable_count: u64,
    /// Bytes in managed memory, outside PyTorch's allocator: states of paged optimizers.
    pub managed_bytes: u64,
    /// What offloading keeps on the host.
    pub host: HostMemory,
    /// How much of the training was run; `None` when nothing is trained.
    pub repetition: Option<Repetition>,
    /// What is computed and moved, phase by phase.
    pub work: Work,
    /// For each of the other devices that were asked about, bytes of the allocations that differ there, at their
    /// `other_size` less one; `None` where it runs another program.
    pub(crate) other_sizes: Vec<Option<Vec<u64>>>,
}
