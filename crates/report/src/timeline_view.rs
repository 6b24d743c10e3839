//! The timeline as JSON.

use serde::Serialize;
use tonnage_core::estimate::Timeline;

/// The course of a job.
#[derive(Serialize)]
pub(crate) struct TimelineView {
    events: usize,
    phases: Vec<SpanView>,
    points: Vec<PointView>,
}

#[derive(Serialize)]
struct SpanView {
    phase: String,
    begin: usize,
    end: usize,
}

#[derive(Serialize)]
struct PointView {
    event: usize,
    allocated_bytes: u64,
    reserved_bytes: u64,
}

impl TimelineView {
    /// The view of `timeline`.
    pub fn new(timeline: &Timeline) -> Self {
        let phases = timeline.phases.iter();
        let points = timeline.points.iter();
        Self {
            events: timeline.events,
            phases: phases
                .map(|span| SpanView { phase: span.phase.label(), begin: span.begin, end: span.end })
                .collect(),
            points: points
                .map(|point| PointView {
                    event: point.event,
                    allocated_bytes: point.allocated,
                    reserved_bytes: point.reserved,
                })
                .collect(),
        }
    }
}
