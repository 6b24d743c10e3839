//! The project's Rust files, and what of one is code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Every Rust file below `root`.
pub(super) fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            // What is linked is read where it lies.
            if path.is_dir() && !path.is_symlink() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The lines of code, without comments, empty lines and the tests at the end.
pub(super) fn code_of(text: &str) -> String {
    let lines =
        text.lines().take_while(|line| !["#[cfg(test)]", "#[cfg(all(test"].iter().any(|start| line.starts_with(start)));
    let lines = lines.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}
