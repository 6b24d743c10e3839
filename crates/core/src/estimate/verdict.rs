//! Whether the job fits, and where it fails if it does not.

use super::engine::{Engine, is_awake};
use super::peaks::{Peaks, PhasePeak};
use crate::alloc::{AllocatorConfig, CachingAllocator, ReplayOom, replay_trace};
use crate::spec::JobSpec;
use crate::trace::{Event, Phase, Trace};

/// A job with less room than this share of the usable bytes is tight: device totals move by 0.1 to 0.2 GiB with the
/// driver, and a context grows as libraries load kernels.
pub const TIGHT_MARGIN_PERCENT: u64 = 2;
/// And less than this many bytes is tight on any GPU.
pub const TIGHT_MARGIN_MIN: u64 = 512 << 20;

/// Whether the job fits on its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits with room to spare.
    Fits,
    /// It runs, but with less room than the margin, or only because the allocator flushes its cache and tries again.
    Tight {
        /// How often the allocator must flush its cache (`num_alloc_retries`).
        retries: u64,
    },
    /// It runs out of memory.
    DoesNotFit(OomMoment),
}

/// Where a job runs out of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomMoment {
    /// Index of the failing event.
    pub event: usize,
    /// The phase.
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

/// Judges a job that has these `peaks` when memory is plenty and holds `outside` bytes outside the allocator. An engine
/// beside it takes its bytes as well; one that has slept must find room to wake.
pub(super) fn verdict(job: &JobSpec, trace: &Trace, peaks: &Peaks, engine: Option<&Engine>, outside: u64) -> Verdict {
    let Some(engine) = engine else { return alone(job, trace, peaks.reserved, outside) };
    let usable = job.gpu.usable_bytes;
    let wakes_at = |peak: &&PhasePeak| is_awake(peak.phase.kind) && engine.awake_bytes > engine.asleep_bytes;
    let tightest = peaks.phases.iter().filter(wakes_at).max_by_key(|peak| peak.reserved);
    if let Some(peak) = tightest.filter(|peak| peak.reserved + engine.awake_bytes + outside > usable) {
        return Verdict::DoesNotFit(no_room_to_wake(trace, peak, engine));
    }
    let held = engine.with_reserved(peaks) + outside;
    match alone(job, trace, peaks.reserved, outside + engine.asleep_bytes) {
        Verdict::Fits if held.saturating_add(margin(usable)) > usable => Verdict::Tight { retries: 0 },
        verdict => verdict,
    }
}

fn no_room_to_wake(trace: &Trace, peak: &PhasePeak, engine: &Engine) -> OomMoment {
    let begins =
        |event: &Event| matches!(event, Event::Phase(at) if trace.phases.get(*at as usize) == Some(&peak.phase));
    OomMoment {
        event: trace.events.iter().position(begins).unwrap_or_default(),
        phase: Some(peak.phase),
        op: "vllm.wake_up",
        module: String::new(),
        node: None,
        requested: engine.awake_bytes,
        allocated: peak.allocated,
        reserved: peak.reserved,
    }
}

/// Room below which a job is tight.
pub(crate) fn margin(usable: u64) -> u64 {
    (usable / 100 * TIGHT_MARGIN_PERCENT).max(TIGHT_MARGIN_MIN)
}

/// Judges a job that needs `reserved` bytes when memory is plenty and holds `outside` bytes outside the allocator.
fn alone(job: &JobSpec, trace: &Trace, reserved: u64, outside: u64) -> Verdict {
    let usable = job.gpu.usable_bytes;
    let available = usable.saturating_sub(outside);
    let allowed = job.allocator.per_process_memory_fraction.map_or(usable, |share| (usable as f64 * share) as u64);
    if reserved <= available.min(allowed) {
        return if reserved.saturating_add(margin(usable)) <= available {
            Verdict::Fits
        } else {
            Verdict::Tight { retries: 0 }
        };
    }
    match run_within(&job.allocator, trace, available) {
        Ok(retries) => Verdict::Tight { retries },
        Err(moment) => Verdict::DoesNotFit(*moment),
    }
}

/// Replays the job on `capacity` bytes: how often the cache is flushed, or where memory runs out.
///
/// # Errors
/// When the job does not fit even with retries.
pub(super) fn run_within(config: &AllocatorConfig, trace: &Trace, capacity: u64) -> Result<u64, Box<OomMoment>> {
    let mut allocator = CachingAllocator::new(config.clone(), Some(capacity));
    match replay_trace(&mut allocator, trace) {
        Ok(_) => Ok(allocator.stats().num_alloc_retries),
        Err(failed) => Err(Box::new(moment(trace, &failed))),
    }
}

fn moment(trace: &Trace, failed: &ReplayOom) -> OomMoment {
    let allocation = match trace.events.get(failed.event) {
        Some(Event::Alloc(id)) => trace.allocations.get(*id as usize),
        _ => None,
    };
    OomMoment {
        event: failed.event,
        phase: allocation.and_then(|allocation| trace.phases.get(allocation.phase as usize)).copied(),
        op: allocation.map_or("", |allocation| allocation.op),
        module: allocation.map_or_else(String::new, |allocation| trace.module(allocation).to_owned()),
        node: allocation.and_then(|allocation| allocation.node),
        requested: failed.oom.requested,
        allocated: failed.oom.allocated,
        reserved: failed.oom.reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Allocation, Category, PhaseKind};
    use crate::units::MIB;

    /// 30 MiB that are freed, then 40 MiB: the cache holds 30 when the 40 are asked for.
    fn trace() -> Trace {
        let allocation = |bytes| Allocation {
            bytes,
            op: "mm.default",
            node: None,
            module: 0,
            phase: 0,
            category: Category::Temporary,
            stream: 0,
        };
        Trace {
            events: vec![Event::Phase(0), Event::Alloc(0), Event::Free(0), Event::Alloc(1)],
            allocations: vec![allocation(30 * MIB), allocation(40 * MIB)],
            modules: vec!["lm_head".to_owned()],
            phases: vec![Phase { kind: PhaseKind::Forward, step: 1 }],
            repeats: Vec::new(),
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
