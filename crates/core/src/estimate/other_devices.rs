//! [`OtherDevices`]: the sizes that a trace has on other devices, and the change from one device to another.

use crate::trace::{AllocationId, Trace};

/// The devices that were asked about when the trace was recorded.
#[derive(Default)]
pub(super) struct OtherDevices {
    /// Sizes by name less one; `None` of a device that runs another program.
    sizes: Vec<Option<Vec<u64>>>,
    /// Those of the device that was simulated.
    own: Vec<u64>,
    /// The device whose sizes the trace has now, if it is not the simulated one.
    at: Option<usize>,
    /// The allocations whose size has a name.
    named: Vec<AllocationId>,
}

impl OtherDevices {
    pub(super) fn new(trace: &Trace, sizes: Vec<Option<Vec<u64>>>) -> Self {
        if sizes.is_empty() {
            return Self::default();
        }
        let mut own = vec![0; sizes.iter().flatten().map(Vec::len).max().unwrap_or_default()];
        let mut named = Vec::new();
        for (id, allocation) in trace.allocations.iter().enumerate().filter(|(_, allocation)| allocation.other_size > 0)
        {
            named.push(id as AllocationId);
            if let Some(size) = own.get_mut(allocation.other_size as usize - 1) {
                *size = allocation.bytes;
            }
        }
        Self { sizes, own, named, ..Self::default() }
    }

    pub(super) fn runs_on(&self, at: usize) -> bool {
        self.sizes.get(at).is_some_and(Option::is_some)
    }

    pub(super) fn sizes_on(&self, at: usize) -> &[u64] {
        self.sizes.get(at).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Gives `trace` the sizes of the device at this place; whether they are those it had.
    pub(super) fn resize_trace(&mut self, trace: &mut Trace, at: usize) -> bool {
        let Some(Some(sizes)) = self.sizes.get(at) else { return false };
        let current = self.at.and_then(|at| self.sizes[at].as_ref()).unwrap_or(&self.own);
        let is_same = sizes == current;
        if !is_same {
            for id in &self.named {
                let allocation = &mut trace.allocations[*id as usize];
                if let Some(bytes) = sizes.get(allocation.other_size as usize - 1) {
                    allocation.bytes = *bytes;
                }
            }
        }
        self.at = Some(at);
        is_same
    }
}
