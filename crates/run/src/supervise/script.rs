//! What a script finds beside its batch: the Python module, its prediction, its job, the leases; and what it leaves: the
//! allocator's peaks.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tonnage_core::limit::JSON_BYTES;
use tonnage_core::record::{AttemptRecord, JobRecord, RunRecord};

use crate::RunError;
use crate::bounded::{self, read_text};
use crate::private::holds_only;
use crate::store::{create_private_folder, write_atomically, write_for_now};

const MODULE: &str = include_str!("../../python/guard/tonnage_guard.py");
const OBSERVE: &str = include_str!("../../python/guard/observe.py");

/// What was prepared for a script.
pub(super) struct Prepared {
    /// Variables that lead to it. They are not recorded: they hold the user's own `PYTHONPATH`.
    pub environment: Vec<(String, String)>,
    /// What could not be written that a script can do without.
    pub warnings: Vec<String>,
}

/// Writes what an attempt's script may read into `folder`. Only a lease is not done without: nodes that all train at once are
/// another job.
pub(super) fn prepare_script(
    root: &Path,
    folder: &Path,
    run: &RunRecord,
    attempt: &AttemptRecord,
) -> Result<Prepared, RunError> {
    let warnings = std::cell::RefCell::new(Vec::new());
    let warn = |error: RunError| warnings.borrow_mut().push(error.to_string());
    if let Some(predicted) = &attempt.predicted {
        let text = json!(predicted).to_string();
        let _ = write_for_now(&folder.join("predicted.json"), text.as_bytes()).map_err(warn);
    }
    if let Some(job) = &run.job {
        let _ = write_job(folder, job).map_err(warn);
    }
    // A full disk is done without; files that others put there are not.
    let or_warn = |written: Result<String, RunError>| match written {
        Err(error @ RunError::Foreign(_)) => Err(error),
        written => Ok(written.map_err(warn).ok()),
    };
    let mut paths: Vec<String> = or_warn(python_module(root))?.into_iter().collect();
    if run.policy.observes {
        paths.extend(or_warn(write_file(&root.join("observe"), "sitecustomize.py", OBSERVE))?);
    }
    paths.extend(std::env::var("PYTHONPATH").ok().filter(|path| !path.is_empty()));
    let mut environment = vec![("PYTHONPATH".to_owned(), paths.join(":"))];
    let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    environment.push(("TONNAGE_PROGRAM".to_owned(), program));
    if run.policy.stop_after_steps.is_some() {
        environment.push(("TONNAGE_PROBE".to_owned(), "1".to_owned()));
    }
    if let Some(lease) = run.policy.lease {
        let gpu = run.nodes.get(attempt.node).and_then(|node| node.gpu.clone()).unwrap_or_default();
        let leases = folder.parent().and_then(Path::parent).unwrap_or(folder).join(format!("leases-{gpu}"));
        create_private_folder(&leases)?;
        environment.push(("TONNAGE_LEASES".to_owned(), leases.display().to_string()));
        environment.push(("TONNAGE_LEASE".to_owned(), lease.to_string()));
    }
    Ok(Prepared { environment, warnings: warnings.into_inner() })
}

/// The folder of the Python module, for `PYTHONPATH`; the module is written where it is not.
///
/// # Errors
/// When it cannot be.
pub fn python_module(root: &Path) -> Result<String, RunError> {
    write_file(&root.join("python"), "tonnage_guard.py", MODULE)
}

/// The job for `tonnage fit`: its file, and what was typed as arguments.
fn write_job(folder: &Path, job: &JobRecord) -> Result<(), RunError> {
    write_for_now(&folder.join("job.toml"), job.text.clone().unwrap_or_default().as_bytes())?;
    let set = |(key, value, _): &(String, String, String)| ["--set".to_owned(), format!("{key}={value}")];
    let arguments: Vec<String> = job.overrides.iter().flat_map(set).collect();
    write_for_now(&folder.join("job.args.json"), json!(arguments).to_string().as_bytes())
}

/// The folder with the file in it, written where it is not the same already: Python takes modules from there before its own.
fn write_file(folder: &Path, name: &str, text: &str) -> Result<String, RunError> {
    let path = folder.join(name);
    create_private_folder(folder)?;
    // What is being written aside is no module.
    let is_aside = |file: &Path| file.extension().is_some_and(|ending| ending.to_string_lossy().starts_with("tmp-"));
    if !holds_only(folder, &|file| file == Path::new(name) || is_aside(file)) {
        return Err(RunError::Foreign(folder.to_owned()));
    }
    if fs::read_to_string(&path).ok().as_deref() != Some(text) {
        write_atomically(&path, text.as_bytes())?;
    }
    Ok(folder.display().to_string())
}

/// The batches that the script went on with by itself: rows of a pass, and passes. Every rank tells the same.
pub(super) fn read_rebatched(folder: &Path) -> Vec<(u64, u64)> {
    let text = read_text(folder.join("batches.json"), JSON_BYTES).unwrap_or_default();
    let batches: Vec<(u64, u64)> = serde_json::from_str(&text).unwrap_or_default();
    batches
}

/// Peaks of allocated and reserved bytes of the process that reserved most, of those that told theirs.
pub(super) fn read_measured(folder: &Path) -> Option<(u64, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_peaks = |name: &str| name.starts_with("allocator-") && name.ends_with(".json");
    let peaks = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_peaks)).filter_map(|entry| {
        let value: Value = serde_json::from_slice(&bounded::read_bounded(entry.path(), JSON_BYTES).ok()?).ok()?;
        Some((value.get("peak_allocated_bytes")?.as_u64()?, value.get("peak_reserved_bytes")?.as_u64()?))
    });
    peaks.max_by_key(|(_, reserved)| *reserved)
}
