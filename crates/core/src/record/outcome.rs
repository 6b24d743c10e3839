//! How attempts and runs end: exit, cause, correction, result and cost.

use serde::{Deserialize, Serialize};

use super::FailureClass;

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExitRecord {
    /// The exit code, of one that exited.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl ExitRecord {
    /// Whether the process says that it succeeded.
    pub const fn is_success(&self) -> bool {
        matches!(self.code, Some(0))
    }

    /// For screens: `succeeded`, `failed (exit 1)`.
    pub fn words(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown end".to_owned(),
        }
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureRecord {
    /// What kind of failure.
    pub class: FailureClass,
    /// The evidence: a line of the log, a counter.
    pub evidence: Vec<String>,
    /// Numbers of the message, by name, in bytes.
    pub numbers: Vec<(String, u64)>,
    /// Seconds from start to failure.
    pub seconds: f64,
    /// Whether it fell into the first minute.
    pub at_start: bool,
    /// The log's last progress at that time, for telling one failure from another.
    pub step: Option<u64>,
    /// Steps that this attempt was seen to make, one after the other.
    pub steps_made: Option<u64>,
}

/// What observation adds to the calculated need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorrectionRecord {
    /// Bytes more than calculated.
    pub offset_bytes: u64,
    /// What the GPU has for this job, as PyTorch said it.
    pub usable_bytes: Option<u64>,
    /// The numbers that decided it, in one sentence.
    pub evidence: String,
}

/// How a run or a node ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command succeeded.
    Succeeded,
    /// It failed, and nothing more is tried.
    #[default]
    Failed,
    /// Somebody asked for it to end.
    Stopped,
    /// It was not started, because it would not fit.
    Refused,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultRecord {
    /// In a word.
    pub outcome: Outcome,
    /// One sentence for people.
    pub reason: String,
    /// The exit of the last process.
    pub exit: ExitRecord,
    /// What it took.
    pub cost: CostRecord,
}

/// Peaks of a process's caching allocator. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeaksRecord {
    /// In live blocks.
    pub peak_allocated_bytes: u64,
    /// In segments taken from the driver.
    pub peak_reserved_bytes: u64,
}

/// What a training takes: predicted, rehearsed and measured beside one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryRecord {
    /// The GPU that is predicted for and rehearsed on.
    pub gpu: String,
    /// By the estimate of the job as it was asked for.
    pub predicted: Option<PeaksRecord>,
    /// By its first steps over a phantom of the GPU.
    pub rehearsed: Option<PeaksRecord>,
    /// By the allocator of the GPU that it ran on, after warm-up.
    pub measured: Option<PeaksRecord>,
    /// The peak of the process's own memory, where it ran on the CPU.
    pub measured_host_bytes: Option<u64>,
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostRecord {
    /// Seconds from start to end.
    pub seconds: f64,
    /// Of these, seconds of attempts that failed.
    pub lost_seconds: f64,
    /// Starts of the command.
    pub attempts: u32,
}
