//! What machine and GPUs did while a run was on them: a file a run in the suite's folder, under the names that W&B has for them
//! (wandb 0.31, `wandb-symon`); what the run's own processes took is read from its samples.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use serde::{Deserialize, Serialize};
use tonnage_core::record::Sample;
use tonnage_run::RunError;
use tonnage_run::bounded::read_ends;
use tonnage_run::store::{RunFolder, create_private_folder};

/// Bytes of a file that are read: of a longer one its beginning and its end.
const MOST_BYTES: u64 = 64 << 20;
/// What a process holds, in MiB; W&B says MB and divides by 1024 twice.
const RESIDENT: &str = "system.proc.memory.rssMB";
/// CPU time of a run's processes, per cent of all cores.
const CPU: &str = "system.cpu";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Look {
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// Seconds since the run was made.
    pub seconds: f64,
    /// Values by their names.
    pub metrics: BTreeMap<String, f64>,
}

/// The file of the run `id` of the suite in `suite`.
fn looks_path(suite: &Path, id: &str) -> PathBuf {
    suite.join("system").join(format!("{id}.jsonl"))
}

/// Adds a look.
///
/// # Errors
/// When it cannot be written.
pub fn append_look(suite: &Path, id: &str, look: &Look) -> Result<(), RunError> {
    let path = looks_path(suite, id);
    create_private_folder(&suite.join("system"))?;
    let line = serde_json::to_string(look).map_err(|error| RunError::damaged(&path, error))?;
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    // A look that is torn costs itself and the next.
    opened
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(|error| RunError::file(&path, error))
}

/// All looks of a run, in their order; lines that cannot be read are left out. `cores` is of the machine.
pub fn read_looks(suite: &Path, id: &str, run: Option<&RunFolder>, cores: usize) -> Vec<Look> {
    let (text, _) = read_ends(looks_path(suite, id), MOST_BYTES).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    let mut looks: Vec<Look> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    looks.extend(run.iter().flat_map(|run| of_processes(run, cores)));
    looks.retain(|look| !look.metrics.is_empty());
    looks.small_sort_by_key(|look| look.at_ms);
    looks
}

/// What a run's processes took, by the samples of its supervisor; of its nodes together.
fn of_processes(run: &RunFolder, cores: usize) -> Vec<Look> {
    let (text, _) = read_ends(run.path().join("samples.jsonl"), MOST_BYTES).unwrap_or_default();
    let samples = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Sample>(line).ok());
    let mut before: BTreeMap<usize, Sample> = BTreeMap::new();
    let mut looks: BTreeMap<u64, Look> = BTreeMap::new();
    for sample in samples {
        // Samples of one tick differ by milliseconds.
        let look = looks.entry(sample.at_ms / 1000).or_default();
        look.at_ms = sample.at_ms;
        look.seconds = sample.at_ms.saturating_sub(run.run().created_ms) as f64 / 1e3;
        *look.metrics.entry(RESIDENT.to_owned()).or_default() += sample.resident_bytes as f64 / f64::from(1 << 20);
        if let Some(last) = before.insert(sample.node, sample) {
            let seconds = sample.at_ms.saturating_sub(last.at_ms) as f64 / 1e3;
            // Less than before: another attempt.
            let worked = sample.cpu_seconds - last.cpu_seconds;
            if seconds > 0.0 && worked >= 0.0 {
                *look.metrics.entry(CPU.to_owned()).or_default() += 100.0 * worked / seconds / cores.max(1) as f64;
            }
        }
    }
    looks.into_values().collect()
}

#[cfg(test)]
mod tests {
    use tonnage_core::record::RunRecord;
    use tonnage_run::store::Store;

    use super::*;

    #[test]
    fn looks_and_samples_are_put_together_and_torn_lines_left_out() {
        let folder = std::env::temp_dir().join(format!("tonnage-system-{}", std::process::id()));
        let store = Store::new(folder.clone());
        let run = store.create(RunRecord { created_ms: 1_000, ..RunRecord::default() }).unwrap();
        let look = |at_ms: u64| Look {
            at_ms,
            seconds: at_ms as f64 / 1e3 - 1.0,
            metrics: BTreeMap::from([("system.gpu.0.memoryAllocated".to_owned(), 50.0)]),
        };
        append_look(&folder, "a", &look(3_000)).unwrap();
        OpenOptions::new().append(true).open(looks_path(&folder, "a")).unwrap().write_all(b"{\"at_ms\": 4\n").unwrap();
        append_look(&folder, "a", &look(9_000)).unwrap();
        for (at_ms, cpu_seconds) in [(2_000, 1.0), (4_000, 2.0), (6_000, 0.5)] {
            run.sample(&Sample { at_ms, cpu_seconds, resident_bytes: 3 << 20, ..Sample::default() }).unwrap();
        }
        let found = read_looks(&folder, "a", Some(&run), 2);
        let times: Vec<u64> = found.iter().map(|look| look.at_ms).collect();
        assert_eq!(times, [2_000, 3_000, 4_000, 6_000, 9_000]);
        assert_eq!(found[2].metrics, BTreeMap::from([(CPU.to_owned(), 25.0), (RESIDENT.to_owned(), 3.0)]));
        assert_eq!(found[3].metrics.get(CPU), None, "another attempt began anew");
        assert!(read_looks(&folder, "b", None, 2).is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
