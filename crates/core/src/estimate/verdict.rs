//! Whether a job fits, and where it fails if it does not: two sizes decide, and a GPU is compared with both.
//!
//! The *safe bound* is what surely is enough: what is reserved when memory is plenty, the context at its highest, what
//! caveats allow for, and a margin. The *least* is the smallest device on which a replay goes through at all, by flushing
//! its cache. A GPU that has the first fits; one that has less than the second, though its context is at its lowest, does
//! not; what lies between is tight. Both are figures of the job alone, so that more memory never makes it stop fitting.

use crate::alloc::PhasePeak;
use crate::alloc::{AllocatorConfig, CachingAllocator, ReplayOom, replay_trace};
use crate::trace::{Event, Phase, Trace};
use crate::units::MIB;

/// The margin's share of what is reserved. The figures are exact on all but one reference case, which is 0.01 % too low;
/// kernels, library versions and models that nobody measured get two hundred times that.
pub const MARGIN_PERCENT: u64 = 2;
/// The margin is at least this: a cuBLAS workspace more than was simulated (32 MiB on sm_90, `parseChosenWorkspaceSize`)
/// and a segment for it and one for what lies beside it (20 MiB, `kLargeBuffer`).
pub const MARGIN_MIN: u64 = 64 * MIB;

/// Segments come in multiples of this (`kSmallBuffer`, `kRoundLarge`).
const GRAIN: u64 = 2 * MIB;

/// Whether the job fits on its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits with room to spare.
    Fits,
    /// It runs, but with less room than the margin, or only because the allocator flushes its cache and tries again.
    Tight {
        /// How often the allocator must flush its cache (`num_alloc_retries`); `None` where nobody asked.
        retries: Option<u64>,
    },
    /// It runs out of memory: where, if anybody asked.
    DoesNotFit(Option<Box<OomMoment>>),
}

/// Where a job runs out of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OomMoment {
    /// Index of the failing event.
    pub event: usize,
    /// `None` before the first phase begins.
    pub phase: Option<Phase>,
    /// The operator that asks for memory.
    pub op: &'static str,
    /// The module it runs in.
    pub module: String,
    /// The autograd node that runs it in backward.
    pub node: Option<&'static str>,
    /// Bytes it asks for.
    pub requested: u64,
    /// Allocated bytes at that moment.
    pub allocated: u64,
    /// Reserved bytes at that moment.
    pub reserved: u64,
}

/// What the allocator may hold on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    /// If all that is not known turns out well.
    pub most: u64,
    /// If the context is at its highest.
    pub expected: u64,
}

/// Room that a job of so many `held` bytes is given beyond what is known of it.
pub const fn safety_margin(held: u64) -> u64 {
    let share = held / 100 * MARGIN_PERCENT;
    if share > MARGIN_MIN { share } else { MARGIN_MIN }
}

/// The smallest device on which a replay of a trace goes through, so far as it is known: each halving takes a replay.
///
/// A memory fraction is left out: it makes a smaller device of the GPU, which is the caller's to count.
#[derive(Clone, Copy)]
pub(super) struct Least {
    /// So many grains are too few.
    low: u64,
    /// So many are enough.
    high: u64,
    reserved: u64,
}

impl Least {
    /// Not below `lowest` bytes, and not above `reserved`, which the job takes when memory is plenty.
    pub fn between(lowest: u64, reserved: u64) -> Self {
        Self { low: (lowest / GRAIN).saturating_sub(1), high: reserved.div_ceil(GRAIN), reserved }
    }

    /// It is not less than the first of these, and not more than the second.
    fn bounds(&self) -> (u64, u64) {
        let bytes = |grains: u64| (grains * GRAIN).min(self.reserved);
        (bytes(self.low + 1), bytes(self.high))
    }

    /// The least itself.
    pub fn find_bytes(&mut self, config: &AllocatorConfig, trace: &Trace) -> u64 {
        while self.high - self.low > 1 {
            self.halve_range(config, trace);
        }
        self.bounds().1
    }

    /// Whether `capacity` is the least or more; not halved further than that takes.
    pub fn is_within(&mut self, capacity: u64, config: &AllocatorConfig, trace: &Trace) -> bool {
        if trace.is_long() {
            return capacity >= self.reserved || run_within(config, trace, capacity).is_ok();
        }
        loop {
            match self.bounds() {
                (_, most) if capacity >= most => return true,
                (least, _) if capacity < least => return false,
                _ => self.halve_range(config, trace),
            }
        }
    }

    fn halve_range(&mut self, config: &AllocatorConfig, trace: &Trace) {
        let middle = self.low.midpoint(self.high);
        match replay_trace(&mut allocator_with(config, middle * GRAIN), trace) {
            Ok(_) => self.high = middle,
            Err(_) => self.low = middle,
        }
    }
}

/// Where a job whose [`Least`] is `least` runs out of memory on `capacity` bytes, which are fewer.
pub(super) fn failure_moment(
    config: &AllocatorConfig,
    trace: &Trace,
    capacity: u64,
    least: u64,
) -> Option<Box<OomMoment>> {
    // Now and then less memory goes through where more does not; one grain below the least never does.
    let below = [capacity, least.saturating_sub(GRAIN)];
    below.into_iter().find_map(|capacity| run_within(config, trace, capacity).err())
}

/// How often such a job must flush its cache on `capacity` bytes, which are as many or more.
pub(super) fn count_retries(config: &AllocatorConfig, trace: &Trace, capacity: u64, least: u64) -> Option<u64> {
    [capacity.max(least), least].into_iter().find_map(|capacity| run_within(config, trace, capacity).ok())
}

/// Where a job asks for memory when a sleeping engine must wake and finds no room.
pub(super) fn no_room_to_wake(trace: &Trace, peak: &PhasePeak, awake_bytes: u64) -> OomMoment {
    let begins =
        |event: &Event| matches!(event, Event::Phase(at) if trace.phases.get(*at as usize) == Some(&peak.phase));
    OomMoment {
        event: trace.events.iter().position(begins).unwrap_or_default(),
        phase: Some(peak.phase),
        op: "vllm.wake_up",
        module: String::new(),
        node: None,
        requested: awake_bytes,
        allocated: peak.allocated,
        reserved: peak.reserved,
    }
}

/// Replays the job on `capacity` bytes: how often the cache is flushed, or where memory runs out.
///
/// # Errors
/// When the job does not fit even with retries.
pub(super) fn run_within(config: &AllocatorConfig, trace: &Trace, capacity: u64) -> Result<u64, Box<OomMoment>> {
    let mut allocator = allocator_with(config, capacity);
    match replay_trace(&mut allocator, trace) {
        Ok(_) => Ok(allocator.stats().num_alloc_retries),
        Err(failed) => Err(Box::new(oom_moment(trace, &failed))),
    }
}

fn allocator_with(config: &AllocatorConfig, capacity: u64) -> CachingAllocator {
    let config = AllocatorConfig { per_process_memory_fraction: None, ..config.clone() };
    CachingAllocator::new(config, Some(capacity))
}

fn oom_moment(trace: &Trace, failed: &ReplayOom) -> OomMoment {
    let allocation = match trace.events.get(failed.event) {
        Some(Event::Alloc(id)) => trace.allocations.get(*id as usize),
        _ => None,
    };
    let origin = allocation.map(|allocation| trace.origin(allocation));
    OomMoment {
        event: failed.event,
        phase: allocation.and_then(|allocation| trace.phases.get(allocation.phase as usize)).copied(),
        op: origin.map_or("", |origin| origin.op),
        module: allocation.map_or_else(String::new, |allocation| trace.module(allocation).to_owned()),
        node: origin.and_then(|origin| origin.node),
        requested: failed.oom.requested,
        allocated: failed.oom.allocated,
        reserved: failed.oom.reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Allocation, Origin, PhaseKind};
    use crate::units::MIB;

    /// 30 MiB that are freed, then 40 MiB: the cache holds 30 when the 40 are asked for.
    fn trace() -> Trace {
        Trace {
            events: vec![Event::Phase(0), Event::Alloc(0), Event::Free(0), Event::Alloc(1)],
            allocations: vec![Allocation::of_bytes(30 * MIB), Allocation::of_bytes(40 * MIB)],
            origins: vec![Origin { op: "mm.default", node: None }],
            modules: vec!["lm_head".to_owned()],
            phases: vec![Phase { kind: PhaseKind::Forward, step: 1 }],
            repeats: Vec::new(),
            growing: Vec::new(),
        }
    }

    #[test]
    fn a_small_gpu_costs_retries_and_a_smaller_one_fails_where_it_must() {
        let config = AllocatorConfig::default();
        assert_eq!(run_within(&config, &trace(), 70 * MIB), Ok(0));
        assert_eq!(run_within(&config, &trace(), 50 * MIB), Ok(1));
        let moment = run_within(&config, &trace(), 39 * MIB).unwrap_err();
        let place = (moment.event, moment.op, moment.module.as_str(), moment.requested);
        assert_eq!(place, (3, "mm.default", "lm_head", 40 * MIB));
        assert_eq!(moment.phase.map(|phase| phase.label()), Some("1:forward".to_owned()));
    }
}
