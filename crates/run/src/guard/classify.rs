//! Why an attempt failed: its log, its exit, what the kernel counted, and what was seen of it while it ran.

use tonnage_core::record::{ExitRecord, FailureRecord};

use crate::launch::LogTail;

/// What is known besides the log.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// How it ended.
    pub exit: ExitRecord,
    /// Seconds it ran.
    pub seconds: f64,
    /// Seconds within which a crash is a failure to start.
    pub startup_seconds: u64,
    /// The last step its log said.
    pub step: Option<u64>,
    /// Whether it was ended because it hung.
    pub stalled: bool,
    /// How often the kernel's memory killer struck in its cgroup while it ran.
    pub oom_kills: u64,
}

/// Classifies a failure.
pub fn classify(_tail: &LogTail, circumstances: &Circumstances) -> FailureRecord {
    let class = "unknown";
    FailureRecord {
        class: class.to_owned(),
        evidence: vec![circumstances.exit.words()],
        numbers: Vec::new(),
        seconds: circumstances.seconds,
        at_start: circumstances.seconds < circumstances.startup_seconds as f64 && circumstances.step.is_none(),
        step: circumstances.step,
    }
}
