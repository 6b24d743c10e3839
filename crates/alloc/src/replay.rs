//! Runs a list of requests, or a whole [`Trace`], through an allocator.

use super::arena::BlockId;
use super::arrangement::Arrangement;
use super::caching::{CachingAllocator, OutOfMemory};
use super::config::AllocatorConfig;
use super::growing;
use super::stats::Stats;
use crate::trace::{AllocationId, Event, Repeat, Trace};

/// One step of a replay. Ids and phases are dense numbers from 0 on: the replay keeps a table of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Allocate `bytes` under `id`.
    Alloc {
        /// The name of the allocation.
        id: u32,
        /// Bytes asked for.
        bytes: u64,
        /// The stream that asks; 0 is the main one.
        stream: u8,
    },
    /// Free what `id` names; nothing happens if it is not live.
    Free {
        /// The name of the allocation.
        id: u32,
    },
    /// The cache is given back to the driver.
    EmptyCache,
    /// A phase begins: peaks start anew.
    Phase {
        /// The phase; it may begin again.
        index: u32,
    },
}

/// The figures of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// For each phase, the counters at its end with the peaks reached inside it.
    pub phases: Vec<Stats>,
    /// The counters at the end with the peaks of the whole replay.
    pub total: Stats,
}

/// A replay that ran out of memory, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event}: {oom}")]
pub struct ReplayOom {
    /// Index of the request that failed.
    pub event: usize,
    /// The request and the state that it met.
    pub oom: Box<OutOfMemory>,
    /// The figures up to there.
    pub replayed: Box<Replayed>,
}

/// Runs requests in order.
///
/// # Errors
/// At the first request that does not fit; the allocator keeps the state of that moment.
pub fn replay(
    allocator: &mut CachingAllocator,
    requests: impl IntoIterator<Item = Request>,
) -> Result<Replayed, ReplayOom> {
    let mut run = Run::new(allocator);
    for (event, request) in requests.into_iter().enumerate() {
        run.answer_request(event, request)?;
    }
    Ok(run.finish())
}

/// Runs a trace through the allocator; [`Replayed::phases`] goes by the trace's phases.
///
/// # Errors
/// At the first allocation that does not fit; `event` is the index in the trace's events.
pub fn replay_trace(allocator: &mut CachingAllocator, trace: &Trace) -> Result<Replayed, ReplayOom> {
    let blocks = vec![BlockId::NONE; trace.allocations.len()];
    let mut run = Run { allocator, blocks, peaks: Peaks::default() };
    let mut index = 0;
    while let Some(event) = trace.events.get(index) {
        match *event {
            // Nearly all events are these two.
            Event::Alloc(id) => run.allocate(trace, index, id)?,
            Event::Free(id) => run.free(id),
            _ => {
                index = run.replay_next(trace, index)?;
                continue;
            }
        }
        index += 1;
    }
    Ok(run.finish())
}

/// A replay that follows a trace while it is recorded, on a device that never runs out.
pub struct Follower {
    allocator: CachingAllocator,
    blocks: Vec<BlockId>,
    next: usize,
}

impl Follower {
    /// An allocator with these settings and nothing recorded yet.
    pub fn new(config: &AllocatorConfig) -> Self {
        let config = AllocatorConfig { per_process_memory_fraction: None, ..config.clone() };
        Self { allocator: CachingAllocator::new(config, None), blocks: Vec::new(), next: 0 }
    }

    /// Replays what was recorded since the last time: how blocks lie then, where that is all that counts.
    ///
    /// # Errors
    /// More is needed than any device has.
    pub fn follow_trace(&mut self, trace: &Trace) -> Result<Option<Arrangement>, ReplayOom> {
        self.catch_up(trace)?;
        Ok(self.allocator.arrangement())
    }

    /// Where an allocation lies that is alive at the end of what was recorded; 0 where more is needed than any device has.
    pub fn address_of(&mut self, trace: &Trace, id: AllocationId) -> u64 {
        match self.catch_up(trace) {
            Ok(()) => self.blocks.get(id as usize).map_or(0, |block| self.allocator.block_address(*block)),
            Err(_) => 0,
        }
    }

    fn catch_up(&mut self, trace: &Trace) -> Result<(), ReplayOom> {
        let blocks = std::mem::take(&mut self.blocks);
        let mut run = Run { allocator: &mut self.allocator, blocks, peaks: Peaks::default() };
        let mut index = self.next;
        while let Some(event) = trace.events.get(index) {
            index = match event {
                Event::Phase(_) => index + 1,
                _ => run.replay_next(trace, index)?,
            };
        }
        (self.blocks, self.next) = (run.blocks, index);
        Ok(())
    }
}

/// What an allocation asks for, and on which stream.
fn size_of(trace: &Trace, id: AllocationId) -> (u64, u8) {
    trace.allocations.get(id as usize).map_or((0, 0), |allocation| (allocation.bytes, allocation.stream))
}

/// What an event asks for; `None` for one that only says how often others happen.
fn request_of(trace: &Trace, event: Event) -> Option<Request> {
    Some(match event {
        Event::Alloc(id) => {
            let (bytes, stream) = size_of(trace, id);
            Request::Alloc { id, bytes, stream }
        }
        Event::Free(id) => Request::Free { id },
        Event::Phase(index) => Request::Phase { index },
        Event::EmptyCache => Request::EmptyCache,
        Event::Repeat(_) | Event::Growing(_) => return None,
    })
}

/// An allocator at work: the blocks it gave out, and the figures so far.
struct Run<'a> {
    allocator: &'a mut CachingAllocator,
    blocks: Vec<BlockId>,
    peaks: Peaks,
}

impl<'a> Run<'a> {
    fn new(allocator: &'a mut CachingAllocator) -> Self {
        Self { allocator, blocks: Vec::new(), peaks: Peaks::default() }
    }

    fn answer_request(&mut self, event: usize, request: Request) -> Result<(), ReplayOom> {
        match request {
            Request::Alloc { id, bytes, stream } => return self.allocate_on(event, (stream, bytes), id),
            Request::Free { id } => self.free(id),
            Request::EmptyCache => self.allocator.empty_cache(),
            Request::Phase { index } => self.peaks.begin_phase(index, self.allocator),
        }
        Ok(())
    }

    #[inline(always)]
    fn allocate(&mut self, trace: &Trace, event: usize, id: AllocationId) -> Result<(), ReplayOom> {
        let (bytes, stream) = size_of(trace, id);
        self.allocate_on(event, (stream, bytes), id)
    }

    #[inline(always)]
    fn allocate_on(&mut self, event: usize, (stream, bytes): (u8, u64), id: u32) -> Result<(), ReplayOom> {
        match self.allocator.malloc_on(stream, bytes) {
            Ok(block) => {
                *slot_at(&mut self.blocks, id, BlockId::NONE) = block;
                Ok(())
            }
            Err(oom) => Err(self.out_of_memory(event, oom)),
        }
    }

    #[inline(always)]
    fn free(&mut self, id: u32) {
        if let Some(block) = self.blocks.get_mut(id as usize) {
            self.allocator.free(std::mem::replace(block, BlockId::NONE));
        }
    }

    /// Runs the event at this index, a repeated stretch with it; the index of the next.
    fn replay_next(&mut self, trace: &Trace, index: usize) -> Result<usize, ReplayOom> {
        let Some(Event::Repeat(at)) = trace.events.get(index) else {
            self.replay_event(trace, index)?;
            return Ok(index + 1);
        };
        let none = Repeat { until: index + 1, times: 0 };
        let repeat = trace.repeats.get(*at as usize).copied().unwrap_or(none);
        self.replay_repeat(trace, index + 1, repeat)?;
        Ok(repeat.until)
    }

    /// Runs the event at this index; where it announces a growing stretch, all of it but the last time.
    fn replay_event(&mut self, trace: &Trace, index: usize) -> Result<(), ReplayOom> {
        let Some(event) = trace.events.get(index) else { return Ok(()) };
        if let Event::Growing(at) = event
            && let Some(growing) = trace.growing.get(*at as usize)
        {
            let memory = (&mut *self.allocator, &mut self.blocks);
            let ran = growing::run_all_but_last(memory, (trace, index + 1), growing, &mut |_, _| {});
            return ran.map_err(|(event, oom)| self.out_of_memory(event, oom));
        }
        match request_of(trace, *event) {
            Some(request) => self.answer_request(index, request),
            None => Ok(()),
        }
    }

    #[cold]
    fn out_of_memory(&mut self, event: usize, oom: Box<OutOfMemory>) -> ReplayOom {
        let replayed = Box::new(std::mem::take(&mut self.peaks).finish(self.allocator));
        ReplayOom { event, oom, replayed }
    }

    /// Runs a stretch as often as it happens, or until it changes nothing any more.
    fn replay_repeat(&mut self, trace: &Trace, first: usize, repeat: Repeat) -> Result<(), ReplayOom> {
        for _ in 0..repeat.times {
            let before = self.allocator.arrangement();
            for at in first..repeat.until {
                self.replay_event(trace, at)?;
            }
            if before.is_some() && before == self.allocator.arrangement() {
                break;
            }
        }
        Ok(())
    }

    fn finish(self) -> Replayed {
        self.peaks.finish(self.allocator)
    }
}

fn slot_at<T: Clone>(table: &mut Vec<T>, index: u32, empty: T) -> &mut T {
    let index = index as usize;
    if index >= table.len() {
        table.resize(index + 1, empty);
    }
    &mut table[index]
}

/// The figures of the phases that ended, and the one that runs.
#[derive(Default)]
struct Peaks {
    ended: Replayed,
    running: Option<u32>,
}

impl Peaks {
    fn begin_phase(&mut self, phase: u32, allocator: &mut CachingAllocator) {
        self.end_phase(allocator);
        self.running = Some(phase);
    }

    fn finish(mut self, allocator: &mut CachingAllocator) -> Replayed {
        self.end_phase(allocator);
        self.ended
    }

    fn end_phase(&mut self, allocator: &mut CachingAllocator) {
        let stats = allocator.stats();
        if let Some(phase) = self.running {
            let earlier = slot_at(&mut self.ended.phases, phase, Stats::default());
            *earlier = stats.clone().with_peaks_of(earlier);
        }
        self.ended.total = stats.clone().with_peaks_of(&self.ended.total);
        allocator.reset_peaks();
    }
}
