//! The baseline: what jobs took, as a file that people read in a diff; and what a job takes beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tonnage_core::small_sort::SmallSort;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tonnage_core::estimate::{Process, shown_bound};
use tonnage_core::limit::JSON_BYTES;
use tonnage_core::trace::Category;
use tonnage_core::units::Bytes;
use tonnage_report::Answer;
use tonnage_run::bounded::read_text;

use crate::command::json;
use crate::failure::Failure;

/// The version of the file, which the pytest plugin shares.
pub const VERSION: u32 = 1;

/// What the file holds.
#[derive(Serialize, Deserialize)]
pub struct Baseline {
    version: u32,
    /// What was measured, by the name of its job.
    #[serde(default)]
    pub jobs: BTreeMap<String, Taken>,
    /// What others keep in the same file, as the pytest plugin does its tests.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// What a job takes, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The version of Tonnage that calculated it.
    pub tonnage: String,
    /// The GPU that the job names.
    pub gpu: Option<String>,
    /// Allocated at the peak.
    pub peak_allocated_bytes: u64,
    /// Reserved at the peak.
    pub peak_reserved_bytes: u64,
    /// On the GPU in all.
    pub total_bytes: u64,
    /// The most that it may be in all; none where something is not known that no allowance covers.
    pub high_bytes: Option<u64>,
    /// Where the peak is.
    pub peak_phase: String,
    /// Allocated at each phase's peak.
    pub peak_per_phase: BTreeMap<String, u64>,
    /// What the peak is made of.
    pub bytes_by_category_at_peak: BTreeMap<String, u64>,
}

/// A figure that changed.
#[derive(Debug, Serialize)]
pub struct Change {
    pub what: String,
    /// As the baseline has it; none where it is not known.
    pub baseline_bytes: Option<u64>,
    /// As it is.
    pub now_bytes: Option<u64>,
}

impl Baseline {
    /// The file; where it is to be written, an empty one if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is of another version.
    pub fn read(path: &Path, is_written: bool) -> Result<Self, Failure> {
        if is_written && !path.exists() {
            return Ok(Self { version: VERSION, jobs: BTreeMap::new(), others: Map::new() });
        }
        let shown = path.display().to_string();
        let text = read_text(path, JSON_BYTES).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::about_file(&shown, &error).with_hint("--update writes it"),
            _ => Failure::about_file(&shown, &error),
        })?;
        let is_no_baseline = |error: serde_json::Error| Failure::bad_input(format!("{shown} is no baseline: {error}"));
        // A version of later is no error of its fields.
        let version =
            serde_json::from_str::<Value>(&text).map_err(is_no_baseline)?.get("version").and_then(Value::as_u64);
        match version {
            Some(version) if version != u64::from(VERSION) => {
                let problem =
                    format!("{shown} is a baseline of version {version}, this program knows version {VERSION}");
                Err(Failure::bad_input(problem)
                    .with_hint("use the version of Tonnage that wrote it, or delete it and --update"))
            }
            _ => serde_json::from_str(&text).map_err(is_no_baseline),
        }
    }

    /// Writes the file: whole, or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed = |error: &std::io::Error| Failure::about_file(&path.display().to_string(), error);
        // What a link names is written, not the link.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = place.with_file_name(name);
        fs::write(&beside, json(self)?).map_err(|error| failed(&error))?;
        fs::rename(&beside, &place).map_err(|error| failed(&error))
    }

    /// What a job took.
    ///
    /// # Errors
    /// When the file does not have it.
    pub fn job(&self, name: &str, path: &Path) -> Result<&Taken, Failure> {
        self.jobs.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.jobs.keys().map(String::as_str).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Failure::bad_input(format!("{} has no job `{name}`", path.display())).with_hint(format!(
                "--update writes it there; --name says under which name it stands (there are: {has})"
            ))
        })
    }
}

impl Taken {
    /// What the answer says.
    pub fn of_answer(answer: &Answer) -> Self {
        let estimate = &answer.estimate;
        let processes = &answer.deployment.processes;
        let high = |one: &Process| shown_bound(one.estimate.safe_bytes).map(|_| one.estimate.range.1);
        let categories = Category::ALL.into_iter().zip(estimate.at_peak.by_category);
        Self {
            tonnage: env!("CARGO_PKG_VERSION").to_owned(),
            gpu: answer.resolved.names_gpu().then(|| answer.resolved.job.gpu.name.clone()),
            peak_allocated_bytes: estimate.peak_allocated_bytes,
            peak_reserved_bytes: estimate.peak_reserved_bytes,
            // Processes that share a GPU add up.
            total_bytes: answer.deployment.fullest().map_or(estimate.total_bytes, |gpu| gpu.total_bytes),
            high_bytes: processes.iter().map(high).try_fold(0, |most, high| Some(most.max(high?))),
            peak_phase: estimate.peak_phase.label(),
            peak_per_phase: estimate.peak_per_phase.iter().map(|peak| (peak.phase.label(), peak.allocated)).collect(),
            bytes_by_category_at_peak: categories
                .filter(|(_, bytes)| *bytes > 0)
                .map(|(category, bytes)| (category.name().to_owned(), bytes))
                .collect(),
        }
    }

    /// The figures that a gate holds.
    fn held_figures(&self) -> [(&'static str, Option<u64>); 3] {
        let (total, peak) = (Some(self.total_bytes), Some(self.peak_allocated_bytes));
        [("total", total), ("total at most", self.high_bytes), ("peak allocated", peak)]
    }

    /// Of these, those that are more than `before` and `percent` allow.
    pub fn grew_beyond(&self, before: &Self, percent: f64) -> Vec<&'static str> {
        let pairs = self.held_figures().into_iter().zip(before.held_figures());
        let grew = pairs.filter(|((_, now), (_, then))| match (now, then) {
            (Some(now), Some(then)) => *now > with_percent(*then, percent),
            (now, then) => now.is_none() && then.is_some(),
        });
        grew.map(|((what, _), _)| what).collect()
    }

    /// What makes the two hard to compare.
    pub fn notes(&self, before: &Self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.gpu != before.gpu {
            let name = |gpu: &Option<String>| gpu.clone().unwrap_or_else(|| "no GPU".to_owned());
            notes.push(format!("the baseline is of {}, this of {}", name(&before.gpu), name(&self.gpu)));
        }
        if self.tonnage != before.tonnage {
            notes.push(format!("the baseline is of Tonnage {}, this of {}", before.tonnage, self.tonnage));
        }
        notes
    }

    /// What differs: the figures themselves, then what the peak is made of and the phases, those that grew most first.
    pub fn changes(&self, before: &Self) -> Vec<Change> {
        let reserved = ("peak reserved", Some(self.peak_reserved_bytes), Some(before.peak_reserved_bytes));
        let held = self
            .held_figures()
            .into_iter()
            .zip(before.held_figures())
            .map(|((what, now), (_, then))| (what, now, then));
        let own = held.chain([reserved]);
        let mut changes: Vec<Change> = own.map(|(what, now, then)| change_of(what, then, now)).collect();
        changes.extend(of_maps("", &before.bytes_by_category_at_peak, &self.bytes_by_category_at_peak));
        changes.extend(of_maps("phase ", &before.peak_per_phase, &self.peak_per_phase));
        changes.retain(|change| change.baseline_bytes != change.now_bytes);
        changes
    }
}

impl Change {
    /// By how much.
    fn difference_bytes(&self) -> Option<i128> {
        Some(i128::from(self.now_bytes?) - i128::from(self.baseline_bytes?))
    }

    /// By how much, with its sign, for people.
    pub fn signed_difference(&self) -> String {
        let Some(by) = self.difference_bytes() else { return String::new() };
        let bytes = Bytes(u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX));
        format!("{}{bytes}", if by < 0 { '-' } else { '+' })
    }

    /// The two sizes for people.
    pub fn sizes(&self) -> [String; 2] {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "not known".to_owned(), |bytes| Bytes(bytes).to_string());
        [self.baseline_bytes, self.now_bytes].map(size)
    }
}

/// The most that `bytes` may become; without a tolerance not one more, whatever a float holds.
fn with_percent(bytes: u64, percent: f64) -> u64 {
    let thousandths = u128::from((percent * 1000.0) as u32);
    u64::try_from(u128::from(bytes) * (100_000 + thousandths) / 100_000).unwrap_or(u64::MAX)
}

fn of_maps(prefix: &str, before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> Vec<Change> {
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.small_sort();
    names.dedup();
    let bytes = |map: &BTreeMap<String, u64>, name: &String| Some(map.get(name).copied().unwrap_or(0));
    let named = |name: &String| change_of(&format!("{prefix}{name}"), bytes(before, name), bytes(now, name));
    let mut changes: Vec<Change> = names.into_iter().map(named).collect();
    changes.small_sort_by_key(|change| -change.difference_bytes().unwrap_or(0));
    changes
}

fn change_of(what: &str, baseline_bytes: Option<u64>, now_bytes: Option<u64>) -> Change {
    Change { what: what.to_owned(), baseline_bytes, now_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(total: u64, activations: u64) -> Taken {
        Taken {
            tonnage: "0.1.0".to_owned(),
            gpu: Some("l4".to_owned()),
            peak_allocated_bytes: total - 10,
            peak_reserved_bytes: total - 5,
            total_bytes: total,
            high_bytes: Some(total + 5),
            peak_phase: "2:backward".to_owned(),
            peak_per_phase: BTreeMap::from([("2:backward".to_owned(), total - 10)]),
            bytes_by_category_at_peak: BTreeMap::from([("activation".to_owned(), activations)]),
        }
    }

    #[test]
    fn growth_is_held_against_the_tolerance() {
        let before = taken(1000, 500);
        let passes = |now: &Taken, percent| now.grew_beyond(&before, percent).is_empty();
        assert!(passes(&taken(1000, 900), 0.0), "what it is made of may change");
        assert!(passes(&taken(900, 500), 0.0));
        assert_eq!(taken(1001, 500).grew_beyond(&before, 0.0), ["total", "total at most", "peak allocated"]);
        assert!(passes(&taken(1010, 500), 2.0) && !passes(&taken(1030, 500), 2.0));
        assert!(passes(&taken(1004, 500), 0.5) && !passes(&taken(1006, 500), 0.5));
        // What is known less well than before is more, too.
        let wider = Taken { high_bytes: Some(2000), ..taken(1000, 500) };
        assert_eq!(wider.grew_beyond(&before, 2.0), ["total at most"]);
        let unknown = Taken { high_bytes: None, ..taken(1000, 500) };
        assert_eq!(unknown.grew_beyond(&before, 1000.0), ["total at most"]);
        assert!(unknown.grew_beyond(&unknown, 0.0).is_empty());
        assert_eq!(with_percent(u64::MAX, 1000.0), u64::MAX);
    }

    #[test]
    fn what_grew_is_named_and_what_did_not_is_left_out() {
        let names =
            |now: &Taken| now.changes(&taken(1000, 500)).into_iter().map(|change| change.what).collect::<Vec<_>>();
        assert_eq!(names(&taken(1000, 500)), Vec::<String>::new());
        assert_eq!(names(&taken(1000, 700)), ["activation"]);
        assert_eq!(names(&taken(1100, 700))[4..], ["activation", "phase 2:backward"]);
    }

    #[test]
    fn other_gpus_and_versions_are_said() {
        let now = Taken { gpu: None, tonnage: "0.2.0".to_owned(), ..taken(1000, 500) };
        let notes = now.notes(&taken(1000, 500));
        assert!(notes[0].contains("of l4, this of no GPU") && notes[1].contains("0.1.0, this of 0.2.0"), "{notes:?}");
    }
}
