//! What PyTorch's CUDA kernels allocate inside one op: workspaces no dispatcher-level view can see.
//!
//! Every function here is pure: shapes, dtypes and the device in, an ordered list of [`Step`]s out. The order
//! matters, for the caching allocator's fragmentation depends on it, so an op's outputs are in the list as well.
//! Sizes are requests in bytes, not yet rounded by the allocator. The behaviour is that of PyTorch 2.11; each
//! kernel is checked against `testdata/scratch/*.json`, measured by `testdata/scratch/measure.py`.

use smallvec::SmallVec;

mod cub;
pub mod efficient;
pub mod embedding;
pub mod flash;
pub mod foreach;
pub mod grouped;
pub mod indexing;
mod iter;
pub mod jagged;
pub mod norm;
pub mod reduce;
mod run;
pub mod scan;
pub mod softmax;
pub mod sort;

pub use run::{Described, DeviceSteps, Outputs, contiguous, like, run_steps};

pub use crate::Device;

#[cfg(test)]
mod table;

/// One thing an op does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The op's output number `index` (in the order of the aten schema) is allocated.
    Output {
        /// Position among the op's returned tensors.
        index: u8,
        /// Size of its storage.
        bytes: u64,
    },
    /// A temporary is allocated.
    Alloc {
        /// Size requested.
        bytes: u64,
        /// The temporary's name within this op; never reused.
        slot: u32,
    },
    /// A temporary is freed.
    Free {
        /// Which one.
        slot: u32,
    },
}

/// What an op does, in order; most do little.
pub type Steps = SmallVec<[Step; 8]>;

/// Builds an op's steps. Allocations of zero bytes are dropped, as the caching allocator is not asked for them.
#[derive(Debug, Default)]
pub struct Plan {
    steps: Steps,
    slots: u32,
}

impl Plan {
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates output number `index`.
    pub fn output(&mut self, index: u8, bytes: u64) {
        if bytes > 0 {
            self.steps.push(Step::Output { index, bytes });
        }
    }

    /// Allocates a temporary; `None` when it is empty.
    pub fn alloc(&mut self, bytes: u64) -> Option<u32> {
        if bytes == 0 {
            return None;
        }
        let slot = self.slots;
        self.slots += 1;
        self.steps.push(Step::Alloc { bytes, slot });
        Some(slot)
    }

    /// Frees a temporary.
    pub fn free(&mut self, slot: Option<u32>) {
        if let Some(slot) = slot {
            self.steps.push(Step::Free { slot });
        }
    }

    /// Allocates a temporary and frees it at once.
    pub fn touch(&mut self, bytes: u64) {
        let slot = self.alloc(bytes);
        self.free(slot);
    }

    /// Frees several temporaries in the given order.
    pub fn free_all(&mut self, slots: impl IntoIterator<Item = Option<u32>>) {
        for slot in slots {
            self.free(slot);
        }
    }

    pub fn finish(self) -> Steps {
        self.steps
    }
}
