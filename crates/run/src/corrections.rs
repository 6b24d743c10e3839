//! Corrections that outlive their run: what a probe measured more than was calculated, kept for later runs of the job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tonnage_core::record::{CorrectionRecord, JobRecord};

use crate::RunError;
use crate::store::{create_private_folder, write_atomically};

/// Keys by which the same job differs from run to run.
const FREE: [&str; 5] =
    ["micro_batch_size", "gradient_accumulation_steps", "grpo.steps_per_generation", "gpu", "swarm.nodes"];

/// The correction of `job` that was kept below `root`.
pub fn kept(root: &Path, job: &JobRecord) -> Option<CorrectionRecord> {
    read(&path(root)).remove(&name(job))
}

/// Keeps a correction for `job`.
///
/// # Errors
/// When it cannot be written.
pub fn keep(root: &Path, job: &JobRecord, correction: &CorrectionRecord) -> Result<(), RunError> {
    create_private_folder(root)?;
    let path = path(root);
    let mut all = read(&path);
    all.insert(name(job), correction.clone());
    let text = serde_json::to_string_pretty(&all).map_err(|error| RunError::Missing(error.to_string()))?;
    write_atomically(&path, text.as_bytes())
}

fn path(root: &Path) -> PathBuf {
    root.join("corrections.json")
}

fn read(path: &Path) -> BTreeMap<String, CorrectionRecord> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// All values that make the job what it is.
fn name(job: &JobRecord) -> String {
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
    fn a_correction_is_the_jobs_at_any_batch() {
        let root = std::env::temp_dir().join(format!("tonnage-corrections-{}", std::process::id()));
        let correction = CorrectionRecord { offset_bytes: 7, ..CorrectionRecord::default() };
        keep(&root, &job(&[("model", "gpt2"), ("micro_batch_size", "8")]), &correction).unwrap();
        assert_eq!(kept(&root, &job(&[("model", "gpt2"), ("micro_batch_size", "4")])), Some(correction));
        assert_eq!(kept(&root, &job(&[("model", "bert")])), None);
        std::fs::remove_dir_all(root).unwrap();
    }
}
