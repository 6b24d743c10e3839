//! Which puzzle, in which view, each row of a step gets: every epoch all puzzles once, shuffled anew.

use tonnage_core::random::SplitMix64;
use tonnage_torch::{Device, Torch};
use tonnage_verifiable::puzzles::{Example, PuzzleSet};

use super::model::Puzzles;
use crate::error::TrainError;

/// A label that no loss counts (`IGNORE_LABEL_ID`).
const IGNORED: i32 = -100;

/// Rows as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub inputs: Vec<i32>,
    pub labels: Vec<i32>,
    pub identifiers: Vec<i32>,
}

impl Rows {
    /// Adds a puzzle: tokens of its question, of its answer, and its row of the table. Padding is no answer.
    pub fn push(&mut self, input: &[u8], output: &[u8], identifier: u64) {
        self.inputs.extend(input.iter().map(|token| i32::from(*token)));
        self.labels.extend(output.iter().map(|token| if *token == 0 { IGNORED } else { i32::from(*token) }));
        self.identifiers.push(i32::try_from(identifier).unwrap_or(i32::MAX));
    }

    /// On the device, [rows, tokens].
    pub fn to_device(&self, torch: &'static Torch, device: Device) -> Result<Puzzles, TrainError> {
        let rows = i64::try_from(self.identifiers.len()).unwrap_or(i64::MAX);
        let sizes = [rows, i64::try_from(self.inputs.len()).unwrap_or(i64::MAX) / rows.max(1)];
        Ok(Puzzles {
            inputs: torch.tensor(&self.inputs, &sizes)?.to_device(device)?,
            labels: torch.tensor(&self.labels, &sizes)?.to_device(device)?,
            puzzle_identifiers: torch.tensor(&self.identifiers, &[rows])?.to_device(device)?,
        })
    }
}

/// Hands out the rows of each step: of each rank those that follow one another in the step's.
pub(super) struct Feeder<'a> {
    pub set: &'a PuzzleSet,
    pub seed: u64,
    /// Views that each puzzle is trained in.
    pub views: u64,
    /// Rows of a step of a rank.
    pub rows: u64,
    /// How many ranks there are, and which of them this is.
    pub ranks: (u64, u64),
    order: (u64, Vec<usize>),
}

impl<'a> Feeder<'a> {
    pub fn new(set: &'a PuzzleSet, seed: u64, views: u64, rows: u64, ranks: (u64, u64)) -> Self {
        let mut feeder = Self { set, seed, views, rows, ranks, order: (0, Vec::new()) };
        feeder.order = (0, feeder.order_of(0));
        feeder
    }

    fn order_of(&self, epoch: u64) -> Vec<usize> {
        let mut random = SplitMix64::new(self.seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut order: Vec<usize> = (0..self.set.train.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.index_below(at + 1));
        }
        order
    }

    /// The rows of a step, 0 for the first: what it gets does not depend on what came before.
    pub fn rows_of(&mut self, step: u64) -> Rows {
        let puzzles = self.set.train.len().max(1) as u64;
        let mut rows = Rows::default();
        let (ranks, rank) = self.ranks;
        for row in 0..self.rows {
            let number = (step * ranks + rank) * self.rows + row;
            let epoch = number / puzzles;
            if self.order.0 != epoch {
                self.order = (epoch, self.order_of(epoch));
            }
            let at = self.order.1[usize::try_from(number % puzzles).unwrap_or(0)];
            let mut random = SplitMix64::new(self.seed.rotate_left(17) ^ number);
            self.push(&mut rows, at, random.below(self.views), &mut random);
        }
        rows
    }

    fn push(&self, rows: &mut Rows, at: usize, number: u64, random: &mut SplitMix64) {
        let example = &self.set.train[at];
        let view = self.set.view(own_views(self.set, example, at), number);
        let (input, output) = (view.apply(&example.input), view.apply(&example.output));
        let (down, right) = self.set.encoding.room(&input, &output);
        let place = (random.index_below(down + 1), random.index_below(right + 1));
        let encode = |grid| self.set.encoding.encode(grid, place);
        rows.push(&encode(&input), &encode(&output), self.set.identifier(example.task, number, self.views));
    }

    /// Epochs that are done after so many steps.
    pub fn epochs(&self, steps: u64) -> f64 {
        steps as f64 * (self.rows * self.ranks.0) as f64 / self.set.train.len().max(1) as f64
    }
}

/// Whose views an example has: its task's, or where there are no tasks its own.
pub(super) fn own_views(set: &PuzzleSet, example: &Example, at: usize) -> u64 {
    if set.tasks > 0 { example.task } else { at as u64 }
}

#[cfg(test)]
mod tests {
    use tonnage_verifiable::puzzles::{BoxShape, MadeOf, SudokuDraw};

    use super::*;

    #[test]
    fn every_epoch_has_every_puzzle_once_and_any_step_can_be_the_first() {
        let shape = BoxShape::of_side(4).unwrap();
        let draw = SudokuDraw { shape, clues: (5, 8), least_guesses: 0 };
        let set = PuzzleSet::make(MadeOf::Sudoku(draw), 3, 12, 2).unwrap();
        let mut feeder = Feeder::new(&set, 9, 1, 4, (1, 0));
        let steps: Vec<Rows> = (0..6).map(|step| feeder.rows_of(step)).collect();
        for epoch in steps.chunks(3) {
            let boards: std::collections::BTreeSet<Vec<i32>> =
                epoch.iter().flat_map(|rows| rows.inputs.chunks(16)).map(<[i32]>::to_vec).collect();
            assert_eq!(boards.len(), 12);
        }
        assert_ne!(steps[..3], steps[3..], "epochs have orders of their own");
        assert_eq!(Feeder::new(&set, 9, 1, 4, (1, 0)).rows_of(5), steps[5]);
        let [first, second] = [0, 1].map(|rank| Feeder::new(&set, 9, 1, 2, (2, rank)).rows_of(5));
        assert_eq!(
            [first.inputs, second.inputs].concat(),
            steps[5].inputs,
            "ranks divide a step's rows in their order"
        );
        let mut augmented = Feeder::new(&set, 9, 50, 4, (1, 0));
        assert_ne!(augmented.rows_of(0), steps[0]);
        assert_eq!(steps[0].labels.len(), 64);
    }

    #[test]
    fn padding_is_no_answer() {
        let mut rows = Rows::default();
        rows.push(&[1, 0], &[3, 0], 7);
        assert_eq!((rows.labels, rows.identifiers), (vec![3, IGNORED], vec![7]));
    }
}
