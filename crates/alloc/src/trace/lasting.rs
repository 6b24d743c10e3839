//! What of a trace is there whatever the batch: weights and the optimizer's states.

use super::{AllocationId, Category, Event, PhaseKind, Trace};

impl Trace {
    /// Weights and optimizer states that are alive when the steps are over, in bytes as requested: whatever the batch, its peak
    /// is no lower.
    pub fn lasting_bytes(&self) -> u64 {
        let lasts = |category| matches!(category, Category::Parameter | Category::OptimizerState);
        let size = |id: AllocationId| {
            let allocation = self.allocations.get(id as usize);
            allocation.filter(|allocation| lasts(allocation.category)).map_or(0, |allocation| allocation.bytes)
        };
        let ends = |at: u32| self.phases.get(at as usize).is_some_and(|phase| phase.kind == PhaseKind::End);
        let mut lasting = 0_u64;
        for event in &self.events {
            match event {
                Event::Alloc(id) => lasting = lasting.saturating_add(size(*id)),
                Event::Free(id) => lasting = lasting.saturating_sub(size(*id)),
                Event::Phase(at) if ends(*at) => break,
                _ => {}
            }
        }
        lasting
    }
}
