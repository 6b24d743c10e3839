//! The record that the shim writes in every process (`crates/run/python/rehearse/tonnage_rehearse/record.py`).

use std::collections::BTreeMap;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version that is read.
const VERSION: u32 = 1;

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is no record.
    #[error("not a record of a rehearsal: {0}")]
    Json(String),
    /// It is of a version that this program does not know.
    #[error("a record of version {0}; this program reads version {VERSION}")]
    Version(u32),
}

/// One process of the script that used a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// Format of the record.
    pub version: u32,
    /// On the machine that rehearsed.
    pub pid: u32,
    /// Global rank; 0 without a launcher.
    pub rank: u32,
    /// Ranks in all.
    pub world_size: u32,
    /// The command line of the process.
    pub command: Vec<String>,
    /// Versions of Python and of the packages in use.
    pub versions: BTreeMap<String, String>,
    /// Optimizer steps done.
    pub steps: u32,
    /// The step after which no peak grew; `None` where the last one still did.
    pub steady_since: Option<u32>,
    /// How the run ended.
    pub stop: Stop,
    /// The exception that ended the script.
    pub failure: Option<Failure>,
    /// Every time PyTorch ran out of memory, also where the script went on.
    pub out_of_memory: Vec<OomRecord>,
    /// The most memory of the host that the process held.
    pub host_peak_bytes: Option<u64>,
    /// Seconds from the first use of the device to the end.
    pub wall_s: f64,
    /// Why the trace ends before the run does.
    pub trace_ends: Option<String>,
    /// What could not be known.
    pub caveats: Vec<Caveat>,
    /// The devices that it used.
    pub devices: Vec<DeviceRecord>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// `end`, `steady`, `steps`, `seconds` or `waiting`.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// The line of the script.
    pub place: Option<String>,
}

/// An exception at the top of the script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class of the exception, without its module.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it is PyTorch's out-of-memory error.
    pub out_of_memory: bool,
    /// As Python prints it, after the class.
    pub message: String,
}

/// A moment in which memory ran out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomRecord {
    /// The device's index.
    pub device: u32,
    /// The phase (`2:backward`).
    pub phase: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes allocated at that moment.
    pub allocated_bytes: u64,
    /// Bytes reserved at that moment.
    pub reserved_bytes: u64,
    /// The line of the script.
    pub line: Option<String>,
    /// The innermost line.
    pub op: String,
}

/// What could not be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caveat {
    /// A word for programs.
    pub code: String,
    /// One sentence for people.
    pub text: String,
    /// The line of the script that asked first.
    pub line: Option<String>,
    /// The lines that asked, the first few.
    #[serde(default)]
    pub lines: Vec<String>,
    /// How often it came up.
    pub times: u64,
}

/// One device; sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its index in the process.
    pub index: u32,
    /// The name it told.
    pub name: String,
    /// Its memory as PyTorch sees it.
    pub total_bytes: u64,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// `torch.cuda.max_memory_allocated()` over the whole run.
    pub peak_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` over the whole run.
    pub peak_reserved_bytes: u64,
    /// The phase with the highest allocated bytes.
    pub peak_phase: String,
    /// Peaks of allocated bytes by phase.
    pub peak_per_phase: PhaseBytes,
    /// Peaks of reserved bytes by phase.
    pub peak_reserved_per_phase: PhaseBytes,
    /// What libraries may take at most inside PyTorch's allocator beyond what was counted (cuDNN's workspaces).
    #[serde(default)]
    pub not_counted_bytes: u64,
    /// How often the allocator flushed its cache.
    pub num_alloc_retries: u64,
    /// How often memory ran out.
    pub num_ooms: u64,
    /// File of the trace, in the same folder.
    pub trace: Option<String>,
}

/// Bytes by label of the phase (`2:backward`), in the order in which the phases began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseBytes(pub Vec<(String, u64)>);

impl Serialize for PhaseBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(phase, bytes)| map.serialize_entry(phase, bytes))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for PhaseBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Phases;
        impl<'de> Visitor<'de> for Phases {
            type Value = PhaseBytes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes by phase")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PhaseBytes, A::Error> {
                let mut phases = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    phases.push(entry);
                }
                Ok(PhaseBytes(phases))
            }
        }
        deserializer.deserialize_map(Phases)
    }
}

/// Reads a record. Its command line is as it was typed: whoever shows it hides what is secret in it.
///
/// # Errors
/// When the text is none, or of another version.
pub fn read_record(text: &str) -> Result<ProcessRecord, RecordError> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let head: Head = serde_json::from_str(text).map_err(|error| RecordError::Json(error.to_string()))?;
    if head.version != VERSION {
        return Err(RecordError::Version(head.version));
    }
    serde_json::from_str(text).map_err(|error| RecordError::Json(error.to_string()))
}

impl ProcessRecord {
    /// Whether it was stopped because it had shown enough, rather than ended by itself or by an error.
    pub fn stopped_here(&self) -> bool {
        matches!(self.stop.reason.as_str(), "steady" | "steps" | "seconds") && self.failure.is_none()
    }

    /// Whether a part of the model never ran, though it may on a GPU (`coverage.py` tells it), or was made empty (`sparse.py`).
    pub fn skipped(&self) -> bool {
        self.caveats.iter().any(|caveat| matches!(caveat.code.as_str(), "skipped" | "sparse_product"))
    }

    /// The out-of-memory error of `device` that ended the script, if that is how it ended.
    pub fn ended_by(&self, device: u32) -> Option<&OomRecord> {
        let ended = self.failure.as_ref().is_some_and(|failure| failure.out_of_memory);
        self.out_of_memory.last().filter(|oom| ended && oom.device == device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = include_str!("../../../run/tests/data/record.json");

    #[test]
    fn reads_what_the_shim_writes() {
        let record = read_record(RECORD).unwrap();
        assert_eq!((record.steps, record.steady_since, record.stop.reason.as_str()), (5, Some(2), "steady"));
        let device = &record.devices[0];
        assert_eq!((device.peak_allocated_bytes, device.peak_phase.as_str()), (1_920_808_960, "2:backward"));
        let phases: Vec<_> = device.peak_per_phase.0.iter().take(3).map(|(label, _)| label.as_str()).collect();
        assert_eq!(phases, ["0:load", "1:forward", "1:backward"]);
        assert_eq!(serde_json::from_str::<ProcessRecord>(&serde_json::to_string(&record).unwrap()).unwrap(), record);
    }

    #[test]
    fn other_texts_are_refused() {
        assert_eq!(read_record("{\"version\": 2}"), Err(RecordError::Version(2)));
        assert!(matches!(read_record("[]"), Err(RecordError::Json(_))));
        assert!(matches!(read_record("{\"version\": 1}"), Err(RecordError::Json(_))));
    }

    #[test]
    fn only_an_error_at_the_top_ends_a_script() {
        let oom = OomRecord {
            device: 0,
            phase: "1:forward".to_owned(),
            requested_bytes: 1,
            allocated_bytes: 0,
            reserved_bytes: 0,
            line: None,
            op: String::new(),
        };
        let mut record = read_record(RECORD).unwrap();
        record.out_of_memory.push(oom);
        assert_eq!(record.ended_by(0), None);
        record.failure =
            Some(Failure { kind: "OutOfMemoryError".to_owned(), out_of_memory: true, message: String::new() });
        assert!(record.ended_by(0).is_some());
        assert_eq!(record.ended_by(1), None);
    }
}
