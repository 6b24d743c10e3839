//! What is alive at the peak: by category, by module, and the largest tensors.

use crate::small_sort::SmallSort;
use std::cmp::Reverse;
use std::collections::HashMap;

use crate::alloc::growing::Place;
use crate::trace::{AllocationId, Category, Event, Growing, Origin, Phase, Trace};
use crate::units::round_up;

/// Every tensor the allocator counts is a multiple of this.
const BLOCK: u64 = 512;
/// How many of the largest tensors are kept.
const LARGEST: usize = 200;

/// The bytes at the moment of the highest allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtPeak {
    /// Bytes of each category, in the order of [`Category::ALL`]; requests rounded up to 512 bytes.
    pub by_category: [u64; Category::ALL.len()],
    /// What blocks hold beyond their rounded request: remainders not worth splitting off. Categories and this add up to
    /// the allocated bytes.
    pub unsplit_bytes: u64,
    /// Bytes by the module that made them, largest first; the empty path is outside any module.
    pub by_module: Vec<(String, u64)>,
    /// Bytes by model (`policy`, `reference`, `judge`), of what was made in a module of one.
    pub by_model: Vec<(&'static str, u64)>,
    /// The largest tensors, largest first.
    pub largest: Vec<LiveTensor>,
    /// How many tensors are alive.
    pub tensors: usize,
}

/// A tensor that is alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveTensor {
    /// Bytes, rounded up to 512.
    pub bytes: u64,
    /// The operator that made it.
    pub op: &'static str,
    /// The autograd node that ran the operator in backward.
    pub node: Option<&'static str>,
    /// The module it was made in.
    pub module: String,
    /// What it holds.
    pub category: Category,
    /// The phase in which it was made.
    pub born: Phase,
}

/// The sizes of allocations at a moment: where that is within a growing stretch, before its recorded time.
#[derive(Clone, Copy)]
struct Sizes<'a> {
    trace: &'a Trace,
    growing: Option<(&'a Growing, u64)>,
}

impl<'a> Sizes<'a> {
    fn live_at(trace: &'a Trace, place: Place) -> Self {
        let holds = |(index, event): (usize, &Event)| match *event {
            Event::Growing(at) => {
                trace.growing.get(at as usize).filter(|growing| growing.until > place.event && index < place.event)
            }
            _ => None,
        };
        let events = trace.events.iter().enumerate().take(place.event).rev();
        let growing = if place.back > 0 { { events }.find_map(holds) } else { None };
        Self { trace, growing: growing.map(|growing| (growing, place.back)) }
    }

    /// Bytes, rounded up to 512.
    fn size_of(&self, id: AllocationId) -> u64 {
        let recorded = |id: AllocationId| self.trace.allocations[id as usize].bytes;
        let Some((growing, back)) = self.growing else { return round_up(recorded(id), BLOCK) };
        // What the first time finds there is what was there before; later it is what the time before it left.
        let found = growing.carried.iter().find(|(old, _)| *old == id).filter(|_| back + 1 < growing.times);
        let (id, back) = found.map_or((id, back), |(_, new)| (*new, back + 1));
        round_up(recorded(id).saturating_add_signed(-growing.size_less(id, back)), BLOCK)
    }
}

/// Bytes of weights and of the optimizer's states that are there at the end.
pub(super) fn lasting_bytes(trace: &Trace) -> u64 {
    let allocations = live_after(trace, trace.events.len()).into_iter().map(|id| &trace.allocations[id as usize]);
    let lasts =
        |one: &&crate::trace::Allocation| matches!(one.category, Category::Parameter | Category::OptimizerState);
    allocations.filter(lasts).map(|one| round_up(one.bytes, BLOCK)).sum()
}

/// What is alive after the event at `peak`, of which the allocator counts `allocated` bytes.
pub(super) fn at_peak(trace: &Trace, peak: Place, allocated: u64) -> AtPeak {
    let sizes = Sizes::live_at(trace, peak);
    let mut live = live_after(trace, peak.event);
    let mut by_category = [0; Category::ALL.len()];
    let mut by_module_id = vec![0; trace.modules.len()];
    let mut by_model: Vec<(&'static str, u64)> = Vec::new();
    for id in &live {
        let allocation = &trace.allocations[*id as usize];
        let bytes = sizes.size_of(*id);
        by_category[allocation.category as usize] += bytes;
        if let Some(sum) = by_module_id.get_mut(allocation.module as usize) {
            *sum += bytes;
        }
        if let Some(model) = trace.model(allocation) {
            match by_model.iter_mut().find(|(name, _)| *name == model) {
                Some((_, sum)) => *sum += bytes,
                None => by_model.push((model, bytes)),
            }
        }
    }
    // Several modules may have one name.
    let mut by_module: HashMap<&str, u64> = HashMap::new();
    for (module, bytes) in trace.modules.iter().zip(by_module_id).filter(|(_, bytes)| *bytes > 0) {
        *by_module.entry(module).or_default() += bytes;
    }
    let mut by_module: Vec<_> = by_module.into_iter().map(|(module, bytes)| (module.to_owned(), bytes)).collect();
    by_module.small_sort_by(|(a, bytes_a), (b, bytes_b)| bytes_b.cmp(bytes_a).then_with(|| a.cmp(b)));
    AtPeak {
        unsplit_bytes: allocated.saturating_sub(by_category.iter().sum()),
        by_category,
        by_module,
        by_model,
        tensors: live.len(),
        largest: largest_tensors(sizes, &mut live),
    }
}

fn live_after(trace: &Trace, event: usize) -> Vec<AllocationId> {
    let mut alive = vec![false; trace.allocations.len()];
    for event in trace.events.iter().take(event + 1) {
        match *event {
            Event::Alloc(id) => alive[id as usize] = true,
            Event::Free(id) => alive[id as usize] = false,
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
        }
    }
    alive.iter().enumerate().filter(|(_, alive)| **alive).map(|(id, _)| id as AllocationId).collect()
}

fn largest_tensors(sizes: Sizes, live: &mut Vec<AllocationId>) -> Vec<LiveTensor> {
    let order = |id: &AllocationId| (Reverse(sizes.size_of(*id)), *id);
    if live.len() > LARGEST {
        live.select_nth_unstable_by_key(LARGEST, order);
        live.truncate(LARGEST);
    }
    live.sort_unstable_by_key(order);
    live.iter().map(|id| live_tensor(sizes, *id)).collect()
}

fn live_tensor(sizes: Sizes, id: AllocationId) -> LiveTensor {
    let trace = sizes.trace;
    let allocation = &trace.allocations[id as usize];
    let Origin { op, node } = trace.origin(allocation);
    LiveTensor {
        bytes: sizes.size_of(id),
        op,
        node,
        module: trace.module(allocation).to_owned(),
        category: allocation.category,
        born: trace.phases[allocation.phase as usize],
    }
}
