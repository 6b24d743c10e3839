//! What both test programs share: snapshots with a diff, and where PyTorch is.
#![allow(dead_code, reason = "each program uses its part")]

pub mod pages;

use std::path::Path;

use similar::TextDiff;

/// Compares `found` with the file, or writes the file anew with `TONNAGE_BLESS=1`; fails with the lines that differ.
pub fn check_snapshot(path: &Path, found: &str) {
    if std::env::var_os("TONNAGE_BLESS").is_some() {
        std::fs::write(path, found).expect("the expected file is written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    if found != expected {
        panic!(
            "{}\n`TONNAGE_BLESS=1 cargo test -p tonnage --test cli` writes it anew",
            difference(path, &expected, found)
        );
    }
}

fn difference(path: &Path, expected: &str, found: &str) -> String {
    let diff = TextDiff::from_lines(expected, found);
    diff.unified_diff().context_radius(2).header(&path.display().to_string(), "found").to_string()
}

/// The Python of a test that is ignored unless asked for.
pub fn torch_python() -> String {
    let python = std::env::var("TONNAGE_TORCH_PYTHON").unwrap_or_default();
    assert!(!python.is_empty(), "set TONNAGE_TORCH_PYTHON to a Python that has PyTorch, or leave out `--ignored`");
    python
}

#[test]
fn a_snapshot_that_differs_shows_its_lines() {
    let (expected, found) = ("one\ntwo\nthree\nfour\nfive\n", "one\ntwo\nthree\nfour\nsix\n");
    let shown = difference(Path::new("screen.txt"), expected, found);
    assert!(shown.starts_with("--- screen.txt\n+++ found\n"), "{shown}");
    assert!(shown.ends_with(" three\n four\n-five\n+six\n") && !shown.contains("one"), "{shown}");
}
