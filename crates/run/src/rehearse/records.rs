//! The folder in which the processes of a rehearsal leave their records and traces, and what is read from it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_core::limit::{JSON_BYTES, REHEARSED_EVENTS};
use tonnage_core::recording::{Recording, TimelineReader};
use tonnage_core::rehearsal::{ProcessRecord, Seen, Unrecorded, read_driver_use, read_record};
use tonnage_secrets::hide_in_words;

use super::RehearseError;
use crate::bounded::read_text;
use crate::launch::is_alive;
use crate::private::TemporaryFolder;

/// The folder; it goes when this goes.
#[derive(Debug)]
pub(super) struct Folder(TemporaryFolder);

/// Processes, the devices that they used, and the files of these devices' traces.
type Read = (Vec<ProcessRecord>, Vec<Seen>, Vec<Option<PathBuf>>);

impl Folder {
    /// A new one among temporary files.
    pub fn make() -> Result<Self, RehearseError> {
        let failed = |error| RehearseError::file(std::env::temp_dir(), error);
        Ok(Self(TemporaryFolder::make().map_err(failed)?))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Everything that was left, by rank.
    pub fn read_records(&self) -> Result<Read, RehearseError> {
        let mut processes = self.process_records()?;
        processes.small_sort_by_key(|process| (process.rank, process.pid));
        let (mut seen, mut traces) = (Vec::new(), Vec::new());
        for process in &mut processes {
            for device in process.devices.clone() {
                let path = device.trace.as_ref().map(|name| self.path().join(name));
                // The counters still tell the peaks where a trace is damaged.
                let (path, recording) = match path.map(read_recording) {
                    Some(Ok((path, recording))) => (Some(path), Some(recording)),
                    Some(Err(problem)) => {
                        process.trace_ends.get_or_insert(problem);
                        (None, None)
                    }
                    None => (None, None),
                };
                seen.push(Seen {
                    rank: process.rank,
                    pid: process.pid,
                    out_of_memory: process.ended_by(device.index).cloned(),
                    device,
                    recording,
                    complete: process.trace_ends.is_none(),
                });
                traces.push(path);
            }
        }
        Ok((processes, seen, traces))
    }

    /// Whether a process that used a device lives and has not left its record yet.
    pub fn is_being_written(&self) -> bool {
        let Ok(entries) = fs::read_dir(self.path()) else { return false };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut pids = names.filter_map(|name| name.strip_prefix("used-")?.parse().ok());
        pids.any(|pid: i32| !self.path().join(format!("record-{pid}.json")).exists() && is_alive(pid))
    }

    /// All processes that used a device, as the driver saw them, by process.
    pub fn driver_uses(&self) -> Result<Vec<Unrecorded>, RehearseError> {
        let failed = |error| RehearseError::file(self.path(), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(pid) = name.strip_prefix("used-").and_then(|pid| pid.parse().ok()) else { continue };
            let text = read_text(&path, JSON_BYTES).map_err(|error| RehearseError::file(&path, error))?;
            let devices = read_driver_use(&text).ok_or_else(|| {
                let problem = "not what the phantom writes of a process".to_owned();
                RehearseError::Record { path, problem }
            })?;
            found.push(Unrecorded { pid, devices });
        }
        found.small_sort_by_key(|one| one.pid);
        Ok(found)
    }

    fn process_records(&self) -> Result<Vec<ProcessRecord>, RehearseError> {
        let failed = |error| RehearseError::file(self.path(), error);
        let mut records = Vec::new();
        for entry in fs::read_dir(self.path()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("record-") && name.ends_with(".json") {
                let text = read_text(&path, JSON_BYTES).map_err(|error| RehearseError::file(&path, error))?;
                let read = read_record(&text);
                let mut record = read.map_err(|error| RehearseError::Record { path, problem: error.to_string() })?;
                record.command = hide_in_words(record.command.iter().map(String::as_str));
                records.push(record);
            }
        }
        Ok(records)
    }
}

/// The file with what it holds, or why it cannot be used.
fn read_recording(path: PathBuf) -> Result<(PathBuf, Recording), String> {
    let unusable = |problem: &dyn std::fmt::Display| {
        format!("{} cannot be used: {problem}", path.file_name().unwrap_or_default().to_string_lossy())
    };
    let mut reader = TimelineReader::of_at_most(REHEARSED_EVENTS);
    for line in BufReader::new(File::open(&path).map_err(|error| unusable(&error))?).lines() {
        reader.read_line(&line.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    let recording = reader.finish().map_err(|error| unusable(&error))?;
    Ok((path, recording))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = include_str!("../../tests/data/record.json");

    #[test]
    fn records_and_traces_are_read_by_rank() {
        let folder = Folder::make().unwrap();
        fs::write(folder.path().join("record-2.json"), RECORD.replace("\"rank\": 0", "\"rank\": 1")).unwrap();
        fs::write(folder.path().join("record-1.json"), RECORD).unwrap();
        fs::write(folder.path().join("record-3.json.part"), "half").unwrap();
        fs::write(folder.path().join("trace-1-0.jsonl"), "{}\n[\"a\",0,512,\"mm\",\"\",\"temporary\"]\n").unwrap();
        let (processes, seen, traces) = folder.read_records().unwrap();
        assert_eq!(processes.iter().map(|process| process.rank).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(seen[0].device.peak_reserved_bytes, 2_189_426_688);
        assert_eq!(seen[0].recording.as_ref().unwrap().events.len(), 1);
        assert_eq!(traces.len(), 2);
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn processes_are_known_by_what_they_held() {
        let folder = Folder::make().unwrap();
        fs::write(folder.path().join("record-1.json"), RECORD).unwrap();
        fs::write(folder.path().join("used-1"), "0 5 5 1 0 0 0\n").unwrap();
        fs::write(folder.path().join("used-7"), "0 5 5 1 0 0 0\n1 9 9 1 0 0 0\n").unwrap();
        fs::write(folder.path().join("used-7.part"), "0 5").unwrap();
        let found = folder.driver_uses().unwrap();
        assert_eq!(
            found.iter().map(|process| (process.pid, process.peak_bytes())).collect::<Vec<_>>(),
            [(1, 5), (7, 9)]
        );
        fs::write(folder.path().join("used-8"), "half").unwrap();
        assert!(folder.driver_uses().unwrap_err().to_string().contains("used-8"));
    }

    #[test]
    fn a_secret_of_the_command_is_not_in_the_record() {
        let folder = Folder::make().unwrap();
        let mut record: serde_json::Value = serde_json::from_str(RECORD).unwrap();
        record["command"] = serde_json::json!(["python", "train.py", "--api-key", "abcdefgh", "--lr", "1"]);
        fs::write(folder.path().join("record-1.json"), record.to_string()).unwrap();
        let (processes, ..) = folder.read_records().unwrap();
        assert_eq!(processes[0].command.join(" "), "python train.py --api-key (hidden) --lr 1");
    }

    #[test]
    fn a_damaged_trace_leaves_the_figures() {
        let folder = Folder::make().unwrap();
        fs::write(folder.path().join("record-1.json"), RECORD).unwrap();
        fs::write(folder.path().join("trace-1-0.jsonl"), "{}\n[\"f\",0]\n").unwrap();
        let (processes, seen, traces) = folder.read_records().unwrap();
        let ends = processes[0].trace_ends.as_deref();
        assert_eq!(ends, Some("trace-1-0.jsonl cannot be used: line 2: frees 0, which is not live"));
        assert_eq!((seen[0].device.peak_reserved_bytes, seen[0].complete), (2_189_426_688, false));
        assert!(seen[0].recording.is_none() && traces == [None]);
    }

    #[test]
    fn a_record_of_another_version_is_named() {
        let folder = Folder::make().unwrap();
        fs::write(folder.path().join("record-1.json"), "{\"version\": 9}").unwrap();
        let error = folder.read_records().unwrap_err().to_string();
        assert!(error.contains("record-1.json: a record of version 9"), "{error}");
    }
}
