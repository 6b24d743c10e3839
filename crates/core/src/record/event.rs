//! [`Entry`]: one line of a run's journal.

use serde::{Deserialize, Serialize};

use crate::progress::Progress;

use super::{AttemptRecord, CorrectionRecord, ExitRecord, FailureRecord, MemoryRecord, Outcome, ResultRecord};

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// What happened then.
    pub event: Event,
}

/// Something that happened to a run, in the order of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields carry the words of the records")]
pub enum Event {
    /// A supervisor took the run.
    Supervised { pid: u32 },
    /// The job was held against the GPU before its start.
    Preflight { text: String, fits: bool },
    /// The command was started once more.
    AttemptStarted { attempt: AttemptRecord },
    /// Its process is there.
    ProcessStarted {
        node: usize,
        number: u32,
        pid: u32,
        /// When it began, in ticks since the machine did: its number may be another's later.
        #[serde(default)]
        began: u64,
    },
    /// It outlived its start-up.
    Healthy { node: usize, number: u32 },
    /// It got this far.
    Progress {
        node: usize,
        #[serde(flatten)]
        progress: Progress,
    },
    /// It neither writes nor works.
    Stalled {
        node: usize,
        seconds: u64,
        #[serde(default)]
        state: String,
    },
    /// A signal was sent to it.
    Signalled { node: usize, signal: String },
    /// The command ended.
    AttemptEnded { node: usize, number: u32, exit: ExitRecord, seconds: f64 },
    /// Why it failed.
    Failed { node: usize, number: u32, failure: FailureRecord },
    /// What the failure says about the estimate.
    Corrected { correction: CorrectionRecord },
    /// What a finished attempt took, in its allocator's own words.
    Measured { node: usize, number: u32, peak_allocated_bytes: u64, peak_reserved_bytes: u64 },
    /// The script changed its batch itself: rows of a pass, and passes.
    Rebatched { node: usize, number: u32, micro_batch_size: u64, gradient_accumulation_steps: u64 },
    /// What the training took, beside what was said of it before.
    Memory { memory: MemoryRecord },
    /// What is done next about a node, and why.
    Decided { node: usize, text: String },
    /// Processes that a killed supervisor left behind were ended.
    Reclaimed { pids: Vec<u32> },
    /// A node is done.
    NodeEnded { node: usize, outcome: Outcome, reason: String },
    /// The run is done.
    RunEnded { result: ResultRecord },
    /// An event of a newer version: its line, as it was found.
    #[serde(skip)]
    Unknown(Box<str>),
}

/// What a process tree used, at a moment; a line of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// From 0, in the order of the run's nodes.
    pub node: usize,
    /// CPU seconds of its processes so far.
    pub cpu_seconds: f64,
    /// Resident bytes of its processes.
    pub resident_bytes: u64,
    /// Optimizer steps that were seen to end.
    pub step: Option<u64>,
}
