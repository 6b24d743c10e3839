//! The house rules that no lint knows: how files open, how long they grow, what they may be called, and that every
//! family, op and optimizer on disk is in its list; that modules name each other one way.

mod circles;
mod fn_names;
mod key_names;
mod lengths;
mod model_types;
mod short_docs;
mod source;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

pub use fn_names::print_words as print_names;
use source::rust_files;

/// Names that say nothing about what is inside.
const FORBIDDEN_NAMES: &[&str] = &["util", "utils", "common", "helpers", "misc", "types", "manager"];
/// Folders in which each file is declared, and used at least once beside its declaration.
const LISTED_FOLDERS: &[&str] = &[
    "crates/core/src/family",
    "crates/core/src/optimizer",
    "crates/tensor/src/op",
    "crates/doctor/src/signature",
    "crates/cli/src/command",
];

/// Checks the working tree; names every file that breaks a rule.
pub fn run() -> Result<()> {
    let mut problems = Vec::new();
    for root in ["crates", "xtask"] {
        for file in rust_files(Path::new(root))? {
            check_file(&file, &mut problems)?;
        }
    }
    for folder in LISTED_FOLDERS {
        check_folder(Path::new(folder), &mut problems)?;
    }
    problems.extend(fn_names::too_many_single()?);
    problems.extend(circles::find_circles()?);
    problems.extend(key_names::stray_keys()?);
    problems.extend(model_types::stray_types()?);
    problems.extend(short_docs::find_short()?);
    if problems.is_empty() { Ok(()) } else { bail!("untidy:\n{}", problems.join("\n")) }
}

fn check_file(file: &Path, problems: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let name = file.display();
    if !text.starts_with("//!") {
        problems.push(format!("{name}: does not open with a `//!` sentence"));
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if FORBIDDEN_NAMES.contains(&stem) {
        problems.push(format!("{name}: `{stem}` says nothing; name it after what is inside"));
    }
    if !["tests", "benches"].iter().any(|folder| file.components().any(|part| part.as_os_str() == *folder)) {
        problems.extend(lengths::too_long(&name.to_string(), &text));
    }
    Ok(())
}

/// Every file of the folder has its `mod` line in `mod.rs`, and something of it is named there.
fn check_folder(folder: &Path, problems: &mut Vec<String>) -> Result<()> {
    let list = folder.join("mod.rs");
    let text = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if stem != "mod" && !text.contains(&format!("mod {stem};")) {
            problems.push(format!("{}: has no `mod {stem};` in {}", path.display(), list.display()));
        }
    }
    Ok(())
}
