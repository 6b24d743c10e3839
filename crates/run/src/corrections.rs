//! What probes saw: the difference between seen and calculated memory outlives its run, for later estimates of the job.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tonnage_core::job::keys;

use serde::{Deserialize, Serialize};
use tonnage_core::job::JobSpec;
use tonnage_core::job::keys::{GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, MICRO_BATCH_SIZE};
use tonnage_core::limit::JSON_BYTES;
use tonnage_core::record::{CorrectionRecord, JobRecord};
use tonnage_core::units::Bytes;

use crate::RunError;
use crate::bounded::read_text;
use crate::clock::now_ms;
use crate::store::{create_private_folder, lock_file, write_atomically};

/// Keys by which the same job differs from run to run.
const FREE: [&str; 5] =
    [MICRO_BATCH_SIZE, GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, keys::GPU, keys::SWARM_NODES];

/// What a probe saw of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// What it adds to estimates of a process, at any batch.
    pub correction: CorrectionRecord,
    /// `measured` on a GPU, or `rehearsed` over a phantom of one.
    pub by: String,
    /// The batch it was seen at.
    pub micro_batch_size: u64,
    /// Peak of reserved bytes of a process, calculated.
    pub calculated_bytes: u64,
    /// The same, seen.
    pub seen_bytes: u64,
    /// When, in milliseconds since 1970 (UTC).
    pub at_ms: u64,
}

impl Kept {
    /// What was seen of `spec`, `by` what.
    pub fn new(by: &str, spec: &JobSpec, calculated_bytes: u64, seen_bytes: u64) -> Self {
        let evidence =
            format!("a probe {by} {} reserved where {} was calculated", Bytes(seen_bytes), Bytes(calculated_bytes));
        let offset_bytes = seen_bytes.saturating_sub(calculated_bytes);
        Self {
            correction: CorrectionRecord { offset_bytes, usable_bytes: None, evidence },
            by: by.to_owned(),
            micro_batch_size: spec.micro_batch_size,
            calculated_bytes,
            seen_bytes,
            at_ms: now_ms(),
        }
    }

    /// What it adds on a GPU, for all the processes of `spec` there.
    pub fn on_a_gpu(&self, spec: &JobSpec) -> CorrectionRecord {
        let offset_bytes = self.correction.offset_bytes.saturating_mul(process_count(spec));
        CorrectionRecord { offset_bytes, ..self.correction.clone() }
    }

    /// By how much less `spec` was seen to need on a GPU; nothing is known of other batches.
    pub fn less_bytes(&self, spec: &JobSpec) -> u64 {
        let less = self.calculated_bytes.saturating_sub(self.seen_bytes).saturating_mul(process_count(spec));
        if spec.micro_batch_size == self.micro_batch_size { less } else { 0 }
    }
}

/// Processes of a job on a GPU that are at their peak at once.
fn process_count(spec: &JobSpec) -> u64 {
    let facts = spec.task.facts();
    facts.lease().unwrap_or(u64::MAX).min(facts.processes_per_gpu())
}

/// What was kept of `job` below `root`.
///
/// # Errors
/// When what is kept cannot be read.
pub fn kept_correction(root: &Path, job: &JobRecord) -> Result<Option<Kept>, RunError> {
    Ok(read_corrections(&corrections_path(root))?.remove(&job_values(job)))
}

/// Keeps what was seen of `job`.
///
/// # Errors
/// When it cannot be written.
pub fn keep_correction(root: &Path, job: &JobRecord, seen: Kept) -> Result<(), RunError> {
    create_private_folder(root)?;
    let path = corrections_path(root);
    // Two probes at once keep both.
    let _held = lock_file(&path.with_extension("lock"))?;
    let mut all = read_corrections(&path)?;
    all.insert(job_values(job), seen);
    let text = serde_json::to_string_pretty(&all).map_err(|error| RunError::damaged(&path, error))?;
    write_atomically(&path, text.as_bytes())
}

fn corrections_path(root: &Path) -> PathBuf {
    root.join("corrections.json")
}

fn read_corrections(path: &Path) -> Result<BTreeMap<String, Kept>, RunError> {
    let text = match read_text(path, JSON_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(RunError::file(path, error)),
    };
    let hint = "; remove it, and probe again what was probed";
    serde_json::from_str(&text).map_err(|source| RunError::Damaged { path: path.to_owned(), source, hint })
}

/// All values that make the job what it is.
fn job_values(job: &JobRecord) -> String {
    let values = job.values.iter().filter(|value| !FREE.contains(&value.key.as_str()));
    values.map(|value| format!("{}={}", value.key, value.value)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use tonnage_core::record::ValueRecord;

    use super::*;

    fn job(values: &[(&str, &str)]) -> JobRecord {
        let value = |(key, value): &(&str, &str)| ValueRecord {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            ..ValueRecord::default()
        };
        JobRecord { values: values.iter().map(value).collect(), ..JobRecord::default() }
    }

    #[test]
    fn more_counts_at_any_batch_and_less_at_its_own() {
        let case = |rows: u64| tonnage_core::job::from_case(&serde_json::json!({"micro_batch": rows})).unwrap();
        let more = Kept::new("measured", &case(8), 100, 130);
        assert_eq!((more.on_a_gpu(&case(4)).offset_bytes, more.less_bytes(&case(8))), (30, 0));
        let less = Kept::new("rehearsed", &case(8), 100, 80);
        assert_eq!((less.less_bytes(&case(8)), less.less_bytes(&case(4))), (20, 0));
        assert_eq!(less.on_a_gpu(&case(8)).offset_bytes, 0);
    }

    #[test]
    fn a_correction_is_the_jobs_at_any_batch() {
        let root = std::env::temp_dir().join(format!("tonnage-corrections-{}", std::process::id()));
        let seen = Kept { seen_bytes: 7, ..Kept::default() };
        keep_correction(&root, &job(&[("model", "gpt2"), ("micro_batch_size", "8")]), seen.clone()).unwrap();
        assert_eq!(
            kept_correction(&root, &job(&[("model", "gpt2"), ("micro_batch_size", "4")])).unwrap(),
            Some(seen.clone())
        );
        assert_eq!(kept_correction(&root, &job(&[("model", "bert")])).unwrap(), None);
        // Probes at once lose nothing; what is damaged stays as it is.
        std::thread::scope(|scope| {
            for model in ["a", "b", "c", "d", "e", "f"] {
                let (root, seen) = (&root, seen.clone());
                scope.spawn(move || keep_correction(root, &job(&[("model", model)]), seen).unwrap());
            }
        });
        assert_eq!(read_corrections(&corrections_path(&root)).unwrap().len(), 7);
        std::fs::write(corrections_path(&root), "{\"cut").unwrap();
        assert!(keep_correction(&root, &job(&[("model", "gpt2")]), seen).is_err());
        assert_eq!(std::fs::read_to_string(corrections_path(&root)).unwrap(), "{\"cut");
        std::fs::remove_dir_all(root).unwrap();
    }
}
