//! What a real job did, from files: timelines of the reference measurements, and PyTorch's memory snapshots.
//!
//! A [`Recording`] can be replayed under any allocator settings, and compared with a [`crate::trace::Trace`].

mod compare;
mod names;
mod pickle;
mod snapshot;
mod timeline;

use std::sync::Arc;

pub use compare::{Comparison, Difference, DifferenceKind, GroupDifference, Names, Place, compare, compare_recordings};
pub use pickle::{Pickle, PickleError, Value, ValueId};
pub use snapshot::{SnapshotError, read_snapshot};
pub use timeline::{TimelineError, TimelineReader, read_timeline, write_recording, write_timeline};

use crate::alloc::Request;

/// The events of a recorded job in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// What the file says about itself, as JSON; `null` when it says nothing.
    pub header: serde_json::Value,
    /// In the order in which the allocator saw them.
    pub events: Vec<RecordedEvent>,
}

/// One event. Allocations are numbered from 0 in order of their birth, whatever the file called them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedEvent {
    /// A phase begins.
    Phase(RecordedPhase),
    /// Memory is requested.
    Alloc(RecordedAlloc),
    /// The allocation with this number is released.
    Free(u32),
    /// The cache is given back to the driver.
    EmptyCache,
}

/// A phase as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordedPhase {
    /// The optimizer step, from 1; 0 for loading.
    pub step: u32,
    /// `forward`, `backward`, ...
    pub name: String,
}

impl RecordedPhase {
    /// `2:backward`, as in the reference measurements.
    pub fn label(&self) -> String {
        format!("{}:{}", self.step, self.name)
    }
}

/// An allocation as recorded; texts are empty where the file says nothing. Each text is there once, whatever says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedAlloc {
    /// From 0, in the order of their first event.
    pub id: u32,
    /// Bytes asked for.
    pub bytes: u64,
    /// The operator (`addmm.default`), or the source line in a snapshot.
    pub op: Arc<str>,
    /// The module path.
    pub module: Arc<str>,
    /// The autograd node that ran it in backward.
    pub node: Option<Arc<str>>,
    /// What it holds, in the profiler's words.
    pub category: Arc<str>,
    /// The stream whose pool it comes from; 0 is the one that kernels run on.
    pub stream: u8,
}

impl Recording {
    /// The text of `PYTORCH_ALLOC_CONF` that the job ran with, as the header tells it; empty where it does not.
    pub fn settings(&self) -> &str {
        self.header.get("settings").and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    /// The events as the allocator takes them; phases are numbered by their place among the phase events.
    pub fn requests(&self) -> impl Iterator<Item = Request> {
        let mut phases = 0..;
        self.events.iter().map(move |event| match event {
            RecordedEvent::Phase(_) => Request::Phase { index: phases.next().unwrap_or(u32::MAX) },
            RecordedEvent::Alloc(RecordedAlloc { id, bytes, stream, .. }) => {
                Request::Alloc { id: *id, bytes: *bytes, stream: *stream }
            }
            RecordedEvent::Free(id) => Request::Free { id: *id },
            RecordedEvent::EmptyCache => Request::EmptyCache,
        })
    }

    /// Whether it knows phases of its job; those that the reader of a snapshot makes are none.
    pub fn has_phases(&self) -> bool {
        self.phases().any(|phase| ![snapshot::BEFORE, snapshot::RECORDED].contains(&phase.name.as_str()))
    }

    /// The phase events in order.
    pub fn phases(&self) -> impl Iterator<Item = &RecordedPhase> {
        self.events.iter().filter_map(|event| match event {
            RecordedEvent::Phase(phase) => Some(phase),
            _ => None,
        })
    }
}
