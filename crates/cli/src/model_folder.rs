//! The folder of a job's model, where its weights and its tokenizer lie: a path, or a snapshot in the hub cache.

use std::path::{Path, PathBuf};

use tonnage_core::job::keys::{JUDGE_MODEL, MODEL};
use tonnage_core::job::{JobSource, Resolved};

use crate::hub_cache;

/// The folder, where there is one.
pub fn model_folder(source: &JobSource, resolved: &Resolved) -> Option<PathBuf> {
    folder_said_by(MODEL, source, resolved, &resolved.job.model.name)
}

/// The folder of the judge of a job of GRPO, where it has one.
pub fn judge_folder(source: &JobSource, resolved: &Resolved) -> Option<PathBuf> {
    let judge = resolved.job.task.facts().judge()?;
    folder_said_by(JUDGE_MODEL, source, resolved, &judge.model.name)
}

fn folder_said_by(key: &str, source: &JobSource, resolved: &Resolved, name: &str) -> Option<PathBuf> {
    let said = resolved.provenance.iter().find(|value| value.key == key)?;
    let said: String = serde_json::from_str(&said.value).ok()?;
    let places = [Some(PathBuf::from(&said)), file_beside_job(source, &said)];
    let found = places.into_iter().flatten().find(|path| path.exists());
    let folder =
        found.map(|path| if path.is_dir() { path } else { path.parent().map(Path::to_owned).unwrap_or_default() });
    let cached = || [said.as_str(), name].into_iter().find_map(hub_cache::find_snapshot);
    folder.or_else(|| Some(cached()?.folder))
}

/// A file that a job names: from the working folder, or from the job file's.
pub fn model_file(source: &JobSource, name: &str) -> PathBuf {
    let path = PathBuf::from(name);
    if path.exists() {
        return path;
    }
    file_beside_job(source, name).filter(|path| path.exists()).unwrap_or(path)
}

fn file_beside_job(source: &JobSource, name: &str) -> Option<PathBuf> {
    Some(Path::new(&source.file.as_ref()?.name).parent()?.join(name))
}
