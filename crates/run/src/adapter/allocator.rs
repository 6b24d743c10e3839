//! The allocator's settings, under the name that the installed PyTorch reads.
//!
//! `PYTORCH_CUDA_ALLOC_CONF` is the name that all versions read; 2.9 warns that it is deprecated and reads
//! `PYTORCH_ALLOC_CONF` as well, but 2.9.1 ignores `expandable_segments` there (pytorch/pytorch#183387): both are set to
//! the same value from 2.9 on.

use std::fs;
use std::path::{Path, PathBuf};

use tonnage_core::record::ChangeRecord;

/// A version of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TorchVersion(pub u32, pub u32);

/// The first that knows the new name.
const RENAMED: TorchVersion = TorchVersion(2, 9);

/// Whether `key` is said by the allocator's variable.
pub(super) fn takes_key(key: &str) -> bool {
    key.starts_with("allocator.")
}

/// The variables that say the allocator's keys among `changes`, on top of what `now` is set.
pub fn allocator_environment(
    changes: &[ChangeRecord],
    now: &str,
    version: Option<TorchVersion>,
) -> Vec<(String, String)> {
    let asked = changes.iter().filter_map(|change| {
        let name = change.key.strip_prefix("allocator.")?;
        let value = if change.value == "true" { "True" } else { change.value.as_str() };
        Some((name.to_owned(), value.to_owned()))
    });
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return Vec::new();
    }
    let kept = now.split(',').filter_map(|setting| setting.split_once(':'));
    let kept = kept.filter(|(name, _)| asked.iter().all(|(other, _)| other != name.trim()));
    let mut settings: Vec<String> = kept.map(|(name, value)| format!("{}:{}", name.trim(), value.trim())).collect();
    settings.extend(asked.iter().map(|(name, value)| format!("{name}:{value}")));
    let text = settings.join(",");
    let mut environment = vec![("PYTORCH_CUDA_ALLOC_CONF".to_owned(), text.clone())];
    if version.is_none_or(|version| version >= RENAMED) {
        environment.push(("PYTORCH_ALLOC_CONF".to_owned(), text));
    }
    environment
}

/// The PyTorch that the command's Python would import, by its `version.py`; nothing is executed.
pub fn find_torch(argv: &[String]) -> Option<TorchVersion> {
    let program = argv.iter().find(|word| !word.contains('=') && !word.starts_with('-'))?;
    let path = find_executable(program)?;
    // A virtual environment's `bin/python` and `bin/torchrun` stand beside its `lib`.
    let roots = [path.parent()?.parent()?.to_owned(), fs::canonicalize(&path).ok()?.parent()?.parent()?.to_owned()];
    roots.iter().find_map(|root| version_below(root))
}

fn find_executable(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

fn version_below(root: &Path) -> Option<TorchVersion> {
    let pythons = fs::read_dir(root.join("lib")).ok()?.flatten();
    let mut files = pythons.map(|python| python.path().join("site-packages/torch/version.py"));
    files.find_map(|file| version_in(&fs::read_to_string(file).ok()?))
}

fn version_in(text: &str) -> Option<TorchVersion> {
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    let mut numbers = line.split(['\'', '"']).nth(1)?.split('.').map(|part| part.parse::<u32>());
    Some(TorchVersion(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, value: &str) -> ChangeRecord {
        ChangeRecord { key: key.to_owned(), value: value.to_owned(), ..ChangeRecord::default() }
    }

    #[test]
    fn the_name_suits_the_version_and_settings_stay() {
        let changes = [change("allocator.expandable_segments", "true"), change("optimizer", "adamw")];
        let set = |version| allocator_environment(&changes, "max_split_size_mb:128,expandable_segments:False", version);
        let text = "max_split_size_mb:128,expandable_segments:True";
        assert_eq!(set(Some(TorchVersion(2, 8))), [("PYTORCH_CUDA_ALLOC_CONF".to_owned(), text.to_owned())]);
        assert_eq!(set(Some(TorchVersion(2, 11))).len(), 2);
        assert_eq!(set(None).len(), 2);
        assert!(allocator_environment(&changes[1..], "", None).is_empty());
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version_in("from typing\n__version__ = '2.11.0+cu130'\n"), Some(TorchVersion(2, 11)));
        assert_eq!(version_in("debug = False"), None);
    }
}
