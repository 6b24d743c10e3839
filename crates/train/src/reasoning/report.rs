//! What a training of HRM tells.

use tonnage_core::job::keys;
use tonnage_verifiable::puzzles::pass_at;

/// Distinct answers that ARC's evaluators look at.
const PASSES: [u64; 6] = [1, 2, 5, 10, 100, 1000];

/// A point of the curve: means since the point before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HrmReport {
    /// Segments that are done.
    pub step: u64,
    /// Of so many.
    pub steps: u64,
    /// Epochs that were fed, with their share.
    pub epoch: f64,
    /// Of the answers, by row.
    pub loss: f64,
    /// Of halting, by row.
    pub q_halt_loss: f64,
    /// Of going on, by row, where rows think more than once.
    pub q_continue_loss: Option<f64>,
    /// Of the rows that halted; `None` where none did.
    pub halted: Option<Halted>,
    /// Of the last step.
    pub learning_rate: f64,
    /// From the beginning: cells of all segments.
    pub tokens_trained: u64,
    /// From the beginning.
    pub seconds: f64,
    /// Until the last step, as fast as lately.
    pub seconds_left: f64,
}

/// Means over the rows that halted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Halted {
    /// Share of a row's cells that are right.
    pub accuracy: f64,
    /// Share of rows without a wrong cell.
    pub exact_accuracy: f64,
    /// Share of rows that knew whether they were right.
    pub q_halt_accuracy: f64,
    /// Segments of a row.
    pub steps: f64,
}

impl HrmReport {
    /// All numbers by their names in `metrics.jsonl`; HRM's where it has the like.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("loss", self.loss),
            ("q_halt_loss", self.q_halt_loss),
            (keys::LEARNING_RATE, self.learning_rate),
            ("epoch", self.epoch),
        ];
        all.extend(self.q_continue_loss.map(|loss| ("q_continue_loss", loss)));
        if let Some(halted) = &self.halted {
            all.extend([
                ("accuracy", halted.accuracy),
                ("exact_accuracy", halted.exact_accuracy),
                ("q_halt_accuracy", halted.q_halt_accuracy),
                ("segments", halted.steps),
            ]);
        }
        all
    }
}

/// A held-out puzzle.
#[derive(Clone, Debug, PartialEq)]
pub struct PuzzleResult {
    /// The same in all runs of its seed, or the line or task of its file.
    pub name: String,
    /// How hard, in words.
    pub difficulty: String,
    /// Views that were answered.
    pub views: u64,
    /// Of these, rightly.
    pub right_views: u64,
    /// The place of the right answer by votes, from 1.
    pub rank: Option<u64>,
    /// Share of the cells of the puzzle itself that are right.
    pub token_accuracy: f64,
    /// Whether the puzzle itself was answered rightly.
    pub is_exact: bool,
}

/// What became of the held-out puzzles.
#[derive(Clone, Debug, PartialEq)]
pub struct PuzzleReport {
    /// Whether the training ends with it.
    pub is_last: bool,
    /// Segments that are done.
    pub step: u64,
    /// In the order of the set.
    pub results: Vec<PuzzleResult>,
    /// The mean loss of a row.
    pub loss: f64,
    /// Share of rows that knew whether they were right.
    pub q_halt_accuracy: f64,
    /// From the beginning.
    pub seconds: f64,
    /// From the beginning.
    pub tokens_trained: u64,
}

impl PuzzleReport {
    fn mean(&self, value: impl Fn(&PuzzleResult) -> f64) -> f64 {
        self.results.iter().map(value).sum::<f64>() / self.results.len().max(1) as f64
    }

    /// Share of cells that are right.
    pub fn token_accuracy(&self) -> f64 {
        self.mean(|result| result.token_accuracy)
    }

    /// Share of puzzles without a wrong cell.
    pub fn exact_accuracy(&self) -> f64 {
        self.mean(|result| f64::from(u8::from(result.is_exact)))
    }

    /// `pass@k` by votes, where there are several views, for every `k` up to their number.
    pub fn passes(&self) -> Vec<(u64, f64)> {
        let views = self.results.iter().map(|result| result.views).max().unwrap_or(0);
        if views < 2 {
            return Vec::new();
        }
        let ranks: Vec<Option<u64>> = self.results.iter().map(|result| result.rank).collect();
        PASSES.into_iter().filter(|k| *k <= views).map(|k| (k, pass_at(k, &ranks))).collect()
    }

    /// All numbers by their names in `metrics.jsonl`.
    pub fn metrics(&self) -> Vec<(String, f64)> {
        let mut all = vec![
            ("eval/loss".to_owned(), self.loss),
            ("eval/accuracy".to_owned(), self.token_accuracy()),
            ("eval/exact_accuracy".to_owned(), self.exact_accuracy()),
            ("eval/q_halt_accuracy".to_owned(), self.q_halt_accuracy),
        ];
        all.extend(self.passes().into_iter().map(|(k, share)| (format!("eval/pass@{k}"), share)));
        all
    }
}
