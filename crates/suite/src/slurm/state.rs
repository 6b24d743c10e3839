//! [`JobState`]: what SLURM says of a job, in its own words (squeue(1), JOB STATE CODES).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_core::failure::Class;
use tonnage_core::record::Outcome;

/// The state of a job or of an array's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits: for its turn, for another job, for somebody to release it.
    Pending,
    /// It has its nodes.
    Running,
    /// It ended, and its exit code was 0.
    Completed,
    /// Its script failed.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It reached its limit of time.
    TimedOut,
    /// The kernel ended it for its host memory.
    OutOfMemory,
    /// A node of it failed, or did not come up.
    NodeFailed,
    /// Another job took its nodes.
    Preempted,
}

/// Every word, the terminal ones in short as `sacct` may have them.
const WORDS: [(&str, JobState); 31] = [
    ("PENDING", JobState::Pending),
    ("PD", JobState::Pending),
    ("REQUEUED", JobState::Pending),
    ("REQUEUE_FED", JobState::Pending),
    ("REQUEUE_HOLD", JobState::Pending),
    ("SPECIAL_EXIT", JobState::Pending),
    ("RESV_DEL_HOLD", JobState::Pending),
    ("CONFIGURING", JobState::Running),
    ("RUNNING", JobState::Running),
    ("R", JobState::Running),
    ("COMPLETING", JobState::Running),
    ("RESIZING", JobState::Running),
    ("SIGNALING", JobState::Running),
    ("STAGE_OUT", JobState::Running),
    ("STOPPED", JobState::Running),
    ("SUSPENDED", JobState::Running),
    ("COMPLETED", JobState::Completed),
    ("CD", JobState::Completed),
    ("FAILED", JobState::Failed),
    ("F", JobState::Failed),
    ("CANCELLED", JobState::Cancelled),
    ("CA", JobState::Cancelled),
    ("REVOKED", JobState::Cancelled),
    ("TIMEOUT", JobState::TimedOut),
    ("TO", JobState::TimedOut),
    ("DEADLINE", JobState::TimedOut),
    ("OUT_OF_MEMORY", JobState::OutOfMemory),
    ("NODE_FAIL", JobState::NodeFailed),
    ("BOOT_FAIL", JobState::NodeFailed),
    ("LAUNCH_FAILED", JobState::NodeFailed),
    ("PREEMPTED", JobState::Preempted),
];

impl JobState {
    /// Of a word, what follows it (`CANCELLED by 0`, `CANCELLED+`) aside.
    pub(super) fn of_word(text: &str) -> Option<Self> {
        let word = text.trim().split([' ', '+']).next().unwrap_or_default();
        WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, state)| *state)
    }

    /// Of JSON: a word, a list of them (since 23.11: the base state, then flags), or either under `current`.
    pub(super) fn of_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(word) => Self::of_word(word),
            Value::Array(words) => {
                let states: Vec<Self> = words.iter().filter_map(Value::as_str).filter_map(Self::of_word).collect();
                // A job that still completes, or is queued again, has not ended whatever its base state says.
                let living = states.iter().find(|state| !state.has_ended());
                living.or(states.first()).copied()
            }
            Value::Object(fields) => Self::of_json(fields.get("current")?),
            _ => None,
        }
    }

    /// Whether nothing more comes of it.
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }

    /// What that means for a run whose script said nothing of its end, and its class where SLURM's word settles it.
    pub(super) const fn outcome(self) -> (Outcome, Option<Class>) {
        match self {
            Self::Cancelled => (Outcome::Stopped, Some(Class::Cancelled)),
            Self::Preempted => (Outcome::Stopped, Some(Class::Preempted)),
            Self::TimedOut => (Outcome::Failed, Some(Class::TimeLimit)),
            Self::OutOfMemory => (Outcome::Failed, Some(Class::HostMemory)),
            Self::NodeFailed => (Outcome::Failed, Some(Class::NodeFailure)),
            Self::Pending | Self::Running | Self::Completed | Self::Failed => (Outcome::Failed, None),
        }
    }

    /// In words, for a reason.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Pending => "it waits",
            Self::Running => "it runs",
            Self::Completed => "SLURM says that it completed, and its script left no result",
            Self::Failed => "SLURM says that it failed",
            Self::Cancelled => "it was cancelled",
            Self::TimedOut => "it reached its limit of time",
            Self::OutOfMemory => "it ran out of its host memory",
            Self::NodeFailed => "its node failed",
            Self::Preempted => "another job took its nodes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_all_versions_are_read() {
        let of = |text: &str| JobState::of_json(&serde_json::from_str(text).unwrap());
        assert_eq!(of("\"RUNNING\""), Some(JobState::Running));
        assert_eq!(of("[\"RUNNING\"]"), Some(JobState::Running));
        assert_eq!(of("[\"FAILED\", \"COMPLETING\"]"), Some(JobState::Running), "its script may still run");
        assert_eq!(of("[\"PREEMPTED\", \"REQUEUED\"]"), Some(JobState::Pending));
        assert_eq!(of(r#"{"current": "COMPLETED", "reason": "None"}"#), Some(JobState::Completed));
        assert_eq!(of(r#"{"current": ["CANCELLED"], "reason": "None"}"#), Some(JobState::Cancelled));
        assert_eq!(JobState::of_word("CANCELLED by 1000"), Some(JobState::Cancelled));
        assert_eq!(JobState::of_word("NODE_FAIL+"), Some(JobState::NodeFailed));
        assert_eq!((of("[]"), of("3"), of("\"LAUFEND\"")), (None, None, None));
    }
}
