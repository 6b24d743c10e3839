//! The puzzles of a training: made from its seed, or read from files.

use std::fs;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_core::job::{JobSpec, PuzzleKind, keys};
use tonnage_verifiable::puzzles::{PuzzleSet, read_arc_task, read_maze_lines, read_sudoku_lines};

use super::settings::HrmSettings;
use crate::error::TrainError;

/// Bytes of a file of puzzles at most; Sudoku-Extreme has 700 MB.
const MOST_BYTES: u64 = 2 << 30;

/// Makes or reads them, and holds them against the model.
///
/// # Errors
/// When they cannot be made or read, or the model is of other puzzles.
pub(super) fn puzzles_of(
    settings: &HrmSettings,
    job: &JobSpec,
    train_files: &[PathBuf],
) -> Result<PuzzleSet, TrainError> {
    let set = if train_files.is_empty() { made(settings)? } else { read(settings, train_files)? };
    if set.train.is_empty() {
        let problem = "there is no puzzle to train on".to_owned();
        return Err(TrainError::refused_with(problem, "name files that hold some as data.train_files"));
    }
    check_model(&set, settings, job)?;
    Ok(set)
}

fn made(settings: &HrmSettings) -> Result<PuzzleSet, TrainError> {
    let how = &settings.how;
    let made = PuzzleSet::make(settings.made_of()?, settings.plain.training.seed, how.train_puzzles, how.eval_puzzles);
    made.map_err(|error| {
        let hint = format!("fewer of `{}` and `{}`, or others", keys::HRM_TRAIN_PUZZLES, keys::HRM_EVAL_PUZZLES);
        TrainError::refused_with(format!("`{}`: {error}", keys::HRM_PUZZLES), hint)
    })
}

fn read(settings: &HrmSettings, files: &[PathBuf]) -> Result<PuzzleSet, TrainError> {
    let eval = usize::try_from(settings.how.eval_puzzles).unwrap_or(usize::MAX);
    let side = usize::try_from(settings.side()).unwrap_or(usize::MAX);
    let mut examples = Vec::new();
    match settings.how.puzzles {
        PuzzleKind::Arc => {
            let mut tasks = Vec::new();
            for path in json_files(files)? {
                let task = read_arc_task(&text_of(&path)?)
                    .map_err(|error| TrainError::about_weights(&path, error.to_string()))?;
                tasks.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), task));
            }
            let mut set = PuzzleSet::of_arc(&tasks);
            set.eval.truncate(eval);
            Ok(set)
        }
        kind => {
            for path in files {
                let text = text_of(path)?;
                let read = if kind == PuzzleKind::Sudoku {
                    read_sudoku_lines(&text, settings.box_shape()?)
                } else {
                    read_maze_lines(&text, side)
                };
                examples.extend(read.map_err(|error| TrainError::about_weights(path, error.to_string()))?);
            }
            Ok(if kind == PuzzleKind::Sudoku {
                PuzzleSet::of_sudokus(settings.box_shape()?, examples, eval)
            } else {
                PuzzleSet::of_mazes(side, examples, eval)
            })
        }
    }
}

/// Files as they are, and of folders the JSON files in them, by name.
fn json_files(named: &[PathBuf]) -> Result<Vec<PathBuf>, TrainError> {
    let mut all = Vec::new();
    for path in named {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).map_err(|error| TrainError::about_file(path, error))?;
        let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| path.extension().is_some_and(|end| end == "json"));
        inside.small_sort();
        all.extend(inside);
    }
    Ok(all)
}

fn text_of(path: &Path) -> Result<String, TrainError> {
    let about = |error| TrainError::about_file(path, error);
    let bytes = fs::metadata(path).map_err(about)?.len();
    if bytes > MOST_BYTES {
        return Err(TrainError::about_weights(path, format!("has {bytes} bytes; up to 2 GiB are read")));
    }
    fs::read_to_string(path).map_err(about)
}

/// The model must have a token for every symbol, a position for every cell, and a row for every puzzle.
fn check_model(set: &PuzzleSet, settings: &HrmSettings, job: &JobSpec) -> Result<(), TrainError> {
    let size = |name: &str, usual: u64| job.model.config.get(name).and_then(serde_json::Value::as_u64).unwrap_or(usual);
    let tokens = set.encoding.tokens() as u64;
    let wanted = [
        (keys::SEQ_LEN, job.seq_len == tokens, job.seq_len, tokens),
        at_least("vocab_size", size("vocab_size", 0), set.encoding.vocabulary() as u64),
        at_least("num_puzzle_identifiers", size("num_puzzle_identifiers", 1), set.identifiers(settings.views())),
    ];
    match wanted.into_iter().find(|(_, is_right, ..)| !is_right) {
        None => Ok(()),
        Some((key, _, has, needs)) => Err(TrainError::refused_with(
            format!("`{key}` is {has}, and these puzzles need {needs}"),
            format!("set {key} = {needs}"),
        )),
    }
}

/// A key, whether it is large enough, what it is and what it has to be.
const fn at_least(key: &'static str, has: u64, needs: u64) -> (&'static str, bool, u64, u64) {
    (key, has >= needs, has, needs)
}
