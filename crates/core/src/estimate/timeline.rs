//! How the bytes rise and fall over the job, downsampled so that no peak is lost.

use crate::alloc::AllocatorConfig;
use crate::alloc::Pass;
use crate::trace::{Category, Event, Phase, Trace};
use crate::units::round_up;

/// The course of a job. The horizontal axis is the index of the event, not time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// Points in order; each is the highest moment of its stretch of events.
    pub points: Vec<TimelinePoint>,
    /// The phases in order.
    pub phases: Vec<PhaseSpan>,
    /// Number of events.
    pub events: usize,
}

/// A column of the plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelinePoint {
    /// Index of the event after which this holds.
    pub event: usize,
    /// The most bytes allocated within the column.
    pub allocated: u64,
    /// The most bytes reserved within the column.
    pub reserved: u64,
    /// Bytes of each category, in the order of [`Category::ALL`].
    pub by_category: [u64; Category::ALL.len()],
}

/// A stretch of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseSpan {
    /// As the step labels it; a phase may come again in the next step.
    pub phase: Phase,
    /// Its first event.
    pub begin: usize,
    /// The event after its last.
    pub end: usize,
}

impl Timeline {
    /// The highest point, the first of several.
    pub fn peak(&self) -> Option<&TimelinePoint> {
        self.points.iter().rev().max_by_key(|point| point.allocated)
    }
}

/// The course of `trace` in at most `columns` points; `None` when the address space is full.
pub(super) fn sampled_timeline(trace: &Trace, config: &AllocatorConfig, columns: usize) -> Option<Timeline> {
    let stretch = trace.events.len().div_ceil(columns.max(1)).max(1);
    let mut pass = Pass::new(trace, config);
    let mut points: Vec<TimelinePoint> = Vec::with_capacity(columns.min(trace.events.len()));
    let mut by_category = [0; Category::ALL.len()];
    for (index, event) in trace.events.iter().enumerate() {
        pass.count_event(trace, index, *event)?;
        count_event(&mut by_category, trace, *event);
        let (allocated, reserved) = pass.current_bytes();
        let begins = index % stretch == 0;
        if begins || points.last().is_some_and(|highest| allocated > highest.allocated) {
            if !begins {
                points.pop();
            }
            points.push(TimelinePoint { event: index, allocated, reserved, by_category });
        }
    }
    Some(Timeline { points, phases: phase_spans(trace), events: trace.events.len() })
}

fn count_event(by_category: &mut [u64], trace: &Trace, event: Event) {
    let (Event::Alloc(id) | Event::Free(id)) = event else { return };
    let allocation = &trace.allocations[id as usize];
    let bytes = round_up(allocation.bytes, 512);
    let sum = &mut by_category[allocation.category as usize];
    *sum = if matches!(event, Event::Alloc(_)) { *sum + bytes } else { *sum - bytes };
}

fn phase_spans(trace: &Trace) -> Vec<PhaseSpan> {
    let mut spans: Vec<PhaseSpan> = Vec::with_capacity(trace.phases.len());
    for (index, event) in trace.events.iter().enumerate() {
        let Event::Phase(phase) = *event else { continue };
        if let Some(last) = spans.last_mut() {
            last.end = index;
        }
        spans.push(PhaseSpan { phase: trace.phases[phase as usize], begin: index, end: trace.events.len() });
    }
    spans
}
