//! The solver that puzzles are graded by: always the open cell with the fewest candidates, the first in reading order among equals.

use super::grid::Grid;
use super::sudoku::BoxShape;

/// What solving came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solved {
    /// The first solution.
    pub solution: Grid,
    /// Whether there is a second one.
    pub is_unique: bool,
    /// Cells at which more than one digit had to be tried, until the first solution was there.
    pub guesses: u32,
}

/// Solves a board, whose blanks are 0; `None` without a solution, or where clues contradict each other.
pub fn solve_board(shape: BoxShape, board: &Grid) -> Option<Solved> {
    let mut search = Search::new(shape, board, |digits| digits)?;
    search.run(2);
    let guesses = search.guesses_of_first;
    let solution = search.first?;
    Some(Solved { solution, is_unique: search.found < 2, guesses })
}

/// A search over the open cells of a board.
pub(super) struct Search<F> {
    shape: BoxShape,
    board: Grid,
    /// Digits that stand in each row, column and box, as bits.
    rows: Vec<u32>,
    columns: Vec<u32>,
    boxes: Vec<u32>,
    /// In which order digits are tried.
    order: F,
    pub found: u32,
    pub first: Option<Grid>,
    guesses: u32,
    guesses_of_first: u32,
}

impl<F: FnMut(Vec<u8>) -> Vec<u8>> Search<F> {
    pub fn new(shape: BoxShape, board: &Grid, order: F) -> Option<Self> {
        let size = shape.size();
        if (board.height, board.width) != (size, size) {
            return None;
        }
        let none = || vec![0; size];
        let mut search = Self {
            shape,
            board: board.clone(),
            rows: none(),
            columns: none(),
            boxes: none(),
            order,
            found: 0,
            first: None,
            guesses: 0,
            guesses_of_first: 0,
        };
        for at in 0..board.cells.len() {
            let digit = board.cells[at];
            if digit == 0 {
                continue;
            }
            if usize::from(digit) > size || search.taken(at) & (1 << digit) != 0 {
                return None;
            }
            search.flip(at, digit);
        }
        Some(search)
    }

    fn taken(&self, at: usize) -> u32 {
        let (row, column) = (at / self.shape.size(), at % self.shape.size());
        self.rows[row] | self.columns[column] | self.boxes[self.shape.box_of(row, column)]
    }

    fn flip(&mut self, at: usize, digit: u8) {
        let (row, column) = (at / self.shape.size(), at % self.shape.size());
        let bit = 1 << digit;
        self.rows[row] ^= bit;
        self.columns[column] ^= bit;
        self.boxes[self.shape.box_of(row, column)] ^= bit;
    }

    /// Looks for solutions until there are `limit`.
    pub fn run(&mut self, limit: u32) {
        let size = u8::try_from(self.shape.size()).unwrap_or(u8::MAX);
        let open = (0..self.board.cells.len()).filter(|at| self.board.cells[*at] == 0);
        let fewest = open.map(|at| (u32::from(size) - self.taken(at).count_ones(), at)).min();
        let Some((candidates, at)) = fewest else {
            self.found += 1;
            if self.first.is_none() {
                self.first = Some(self.board.clone());
                self.guesses_of_first = self.guesses;
            }
            return;
        };
        self.guesses += u32::from(candidates > 1);
        let taken = self.taken(at);
        let digits = (self.order)((1..=size).filter(|digit| taken & (1 << digit) == 0).collect());
        for digit in digits {
            self.board.cells[at] = digit;
            self.flip(at, digit);
            self.run(limit);
            self.flip(at, digit);
            self.board.cells[at] = 0;
            if self.found >= limit {
                return;
            }
        }
    }
}
