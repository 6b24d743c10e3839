//! What a training of HRM learns from, and how its puzzle table learns. Nothing of it changes a byte of a step.

use serde::{Deserialize, Serialize};

/// What is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PuzzleKind {
    /// Boards with one solution.
    #[default]
    Sudoku,
    /// The way from start to goal.
    Maze,
    /// Tasks of the Abstraction and Reasoning Corpus.
    Arc,
}

/// What HRM learns from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HrmTraining {
    /// What is solved.
    pub puzzles: PuzzleKind,
    /// Cells of a side, where it was said.
    pub side: Option<u64>,
    /// Puzzles that are made to train on.
    pub train_puzzles: u64,
    /// Puzzles that are held out.
    pub eval_puzzles: u64,
    /// Clues of a Sudoku at least, where it was said.
    pub clues_min: Option<u64>,
    /// Clues of a Sudoku at most, where it was said.
    pub clues_max: Option<u64>,
    /// Guesses of a Sudoku at least.
    pub guesses_min: u64,
    /// Views of each puzzle that are trained on beside it.
    pub augmentations: u64,
    /// Views of each held-out puzzle whose answers are voted on.
    pub eval_views: u64,
    /// Learning rate of the puzzle table, where it was said.
    pub puzzle_emb_lr: Option<f64>,
    /// Decay of the puzzle table, where it was said.
    pub puzzle_emb_weight_decay: Option<f64>,
}
