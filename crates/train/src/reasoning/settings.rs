//! What a training of HRM is told, and what it cannot do here, refused before anything is loaded.

use tonnage_core::job::{HrmTraining, JobSpec, PuzzleKind, Task, TrainingSpec, keys};
use tonnage_verifiable::puzzles::{BoxShape, MadeOf, MazeDraw, SudokuDraw};

use crate::error::TrainError;
use crate::training::Settings;

/// The published sets' sides.
const SUDOKU_SIDE: u64 = 9;
const MAZE_SIDE: u64 = 30;

/// All that a training of HRM goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct HrmSettings {
    /// Rows of a step, learning rate, optimizer.
    pub plain: Settings,
    /// What is solved.
    pub how: HrmTraining,
    /// Segments of the whole training.
    pub steps: u64,
}

impl HrmSettings {
    /// Of a job and its training.
    ///
    /// # Errors
    /// When the job says what is not carried here; with the way out.
    pub fn of(job: &JobSpec, training: &TrainingSpec) -> Result<Self, TrainError> {
        if !matches!(job.task, Task::Hrm) {
            return Err(TrainError::refused_with("the job is none of HRM".to_owned(), "set task = \"hrm\""));
        }
        let Some(steps) = training.max_steps else {
            let problem =
                "`max_steps` is not set: a segment is no epoch's part, as rows halt when they are done".to_owned();
            let hint = "set max_steps; HRM's recipes make epochs x puzzles / global_batch_size of them";
            return Err(TrainError::refused_with(problem, hint));
        };
        Ok(Self { plain: Settings::of_job(job, training)?, how: training.hrm.clone(), steps })
    }

    /// Views that each puzzle is trained in.
    pub const fn views(&self) -> u64 {
        self.how.augmentations + 1
    }

    /// Cells of a side.
    pub fn side(&self) -> u64 {
        let usual = if self.how.puzzles == PuzzleKind::Maze { MAZE_SIDE } else { SUDOKU_SIDE };
        self.how.side.unwrap_or(usual)
    }

    /// The boxes of a Sudoku.
    ///
    /// # Errors
    /// When a board of that side has none.
    pub fn box_shape(&self) -> Result<BoxShape, TrainError> {
        let side = usize::try_from(self.side()).unwrap_or(usize::MAX);
        BoxShape::of_side(side).ok_or_else(|| {
            let problem = format!("`{}` = {side}: no Sudoku is as large", keys::HRM_SIDE);
            TrainError::refused_with(problem, "set it to 25 or less")
        })
    }

    /// What is made where nothing is read.
    ///
    /// # Errors
    /// When no such puzzle is.
    pub fn made_of(&self) -> Result<MadeOf, TrainError> {
        let side = usize::try_from(self.side()).unwrap_or(usize::MAX);
        match self.how.puzzles {
            PuzzleKind::Sudoku => {
                let cells = self.side() * self.side();
                let size = |said: Option<u64>, usual: u64| usize::try_from(said.unwrap_or(usual)).unwrap_or(usize::MAX);
                let least = size(self.how.clues_min, cells / 3);
                let most = size(self.how.clues_max, (cells / 2).max(least as u64));
                if least > most {
                    let problem =
                        format!("`{}` = {least} is above `{}` = {most}", keys::HRM_CLUES_MIN, keys::HRM_CLUES_MAX);
                    return Err(TrainError::refused_with(problem, "set both, the lower one first"));
                }
                let least_guesses = u32::try_from(self.how.guesses_min).unwrap_or(u32::MAX);
                Ok(MadeOf::Sudoku(SudokuDraw { shape: self.box_shape()?, clues: (least, most), least_guesses }))
            }
            PuzzleKind::Maze => Ok(MadeOf::Maze(MazeDraw { side, least_way: side })),
            PuzzleKind::Arc => Err(TrainError::refused_with(
                "tasks of ARC are not made: they are read".to_owned(),
                "name the task files, or their folder, as data.train_files",
            )),
        }
    }

    /// The learning rate of the puzzle table in a step, 0 for the first: it goes as the other.
    pub fn puzzle_learning_rate(&self, step: u64) -> f64 {
        let own = self.how.puzzle_emb_lr.unwrap_or(self.plain.training.learning_rate);
        let share = self.plain.learning_rate(step, self.steps) / self.plain.training.learning_rate;
        if share.is_finite() { own * share } else { own }
    }

    /// The decay of the puzzle table.
    pub fn puzzle_decay(&self) -> f64 {
        self.how.puzzle_emb_weight_decay.unwrap_or(self.plain.training.weight_decay)
    }

    /// What another training must have the same to go on from a checkpoint of this one.
    pub(super) fn in_words(&self) -> String {
        format!("{:?}", HrmTraining { eval_puzzles: 0, eval_views: 0, ..self.how.clone() })
    }
}
