//! Sudoku of any box: boards with one solution, as hard as asked, made from a seed.

use tonnage_core::random::SplitMix64;

use super::grid::Grid;
use super::solver::{Search, solve_board};

/// Boards that are dug for one that is hard enough.
const MOST_TRIES: u32 = 12;
/// The largest side: its digits are bits of a `u32` and tokens of one byte.
const LARGEST: usize = 25;

/// Rows and columns of a box; a board has as many boxes as fit a square of their product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxShape {
    rows: usize,
    columns: usize,
}

impl BoxShape {
    /// `None` for boxes of no cell, and boards beyond 25 x 25.
    pub const fn new(rows: usize, columns: usize) -> Option<Self> {
        if rows == 0 || columns == 0 || rows > LARGEST || columns > LARGEST || rows * columns > LARGEST {
            return None;
        }
        Some(Self { rows, columns })
    }

    /// The usual box of a board with such a side: as square as can be, wider than high (6 has boxes of 2 x 3).
    pub fn of_side(side: usize) -> Option<Self> {
        let rows =
            (1..=side).take_while(|rows| rows * rows <= side).filter(|rows| side.is_multiple_of(*rows)).last()?;
        Self::new(rows, side / rows)
    }

    /// Digits, and cells of a row, a column, a box.
    pub const fn size(self) -> usize {
        self.rows * self.columns
    }

    /// Rows of a box, which make a band.
    pub const fn rows(self) -> usize {
        self.rows
    }

    /// Columns of a box, which make a stack.
    pub const fn columns(self) -> usize {
        self.columns
    }

    pub(super) const fn box_of(self, row: usize, column: usize) -> usize {
        row / self.rows * self.rows + column / self.columns
    }
}

/// Which boards are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SudokuDraw {
    /// Of a box.
    pub shape: BoxShape,
    /// Clues that are left at least, and at most; a board whose solution needs more keeps more.
    pub clues: (usize, usize),
    /// Guesses that the solver of this crate needs at least.
    pub least_guesses: u32,
}

impl SudokuDraw {
    /// The whole board of a seed.
    pub fn solution(&self, seed: u64) -> Grid {
        let size = self.shape.size();
        let mut random = SplitMix64::new(seed);
        let empty = Grid { height: size, width: size, cells: vec![0; size * size] };
        let shuffled = |mut digits: Vec<u8>| {
            shuffle(&mut digits, &mut random);
            digits
        };
        let Some(mut search) = Search::new(self.shape, &empty, shuffled) else { return empty };
        search.run(1);
        search.first.unwrap_or(empty)
    }

    /// A board with exactly this solution; `None` where none of those that were tried was hard enough. With it, the solver's guesses.
    pub fn dig(&self, solution: &Grid, seed: u64) -> Option<(Grid, u32)> {
        let mut random = SplitMix64::new(seed);
        let (least, most) = self.clues;
        let tries = if self.least_guesses > 0 { MOST_TRIES } else { 1 };
        (0..tries).find_map(|_| {
            let wanted = least + random.index_below(most.saturating_sub(least) + 1);
            let board = dug(self.shape, solution, wanted, &mut random);
            let guesses = solve_board(self.shape, &board)?.guesses;
            (guesses >= self.least_guesses).then_some((board, guesses))
        })
    }
}

/// Clues are taken away in a random order, each if the solution stays the only one.
fn dug(shape: BoxShape, solution: &Grid, wanted: usize, random: &mut SplitMix64) -> Grid {
    let mut board = solution.clone();
    let mut order: Vec<usize> = (0..board.cells.len()).collect();
    shuffle(&mut order, random);
    let mut clues = order.len();
    for at in order {
        if clues <= wanted {
            break;
        }
        let digit = std::mem::take(&mut board.cells[at]);
        if solve_board(shape, &board).is_some_and(|solved| solved.is_unique) {
            clues -= 1;
        } else {
            board.cells[at] = digit;
        }
    }
    board
}

/// Whether a board is full, keeps all rules, and has the clues of another.
pub fn is_solution_of(shape: BoxShape, solution: &Grid, board: &Grid) -> bool {
    let keeps_clues = board.cells.len() == solution.cells.len()
        && board.cells.iter().zip(&solution.cells).all(|(clue, cell)| *clue == 0 || clue == cell);
    keeps_clues && !solution.cells.contains(&0) && solve_board(shape, solution).is_some()
}

pub(super) fn shuffle<T>(list: &mut [T], random: &mut SplitMix64) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.index_below(at + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(side: usize, clues: (usize, usize), least_guesses: u32) -> SudokuDraw {
        SudokuDraw { shape: BoxShape::of_side(side).unwrap(), clues, least_guesses }
    }

    #[test]
    fn every_board_has_exactly_its_solution() {
        for (side, clues) in [(4, (4, 7)), (6, (12, 18)), (9, (28, 34))] {
            let draw = draw(side, clues, 0);
            for seed in 0..6 {
                let solution = draw.solution(seed);
                let (board, guesses) = draw.dig(&solution, seed).unwrap();
                let solved = solve_board(draw.shape, &board).unwrap();
                assert!(solved.is_unique && solved.solution == solution && solved.guesses == guesses, "{side} {seed}");
                assert!(is_solution_of(draw.shape, &solution, &board));
                let left = board.cells.iter().filter(|cell| **cell > 0).count();
                assert!(left < solution.cells.len() && left >= clues.0, "{side}: {left} clues");
                let mut wrong = solution.clone();
                wrong.cells.swap(0, 1);
                assert!(!is_solution_of(draw.shape, &wrong, &board), "two cells changed places");
            }
        }
    }

    #[test]
    fn hard_boards_need_guesses_and_easy_ones_none() {
        let hard = draw(9, (22, 26), 3);
        let (_, guesses) = hard.dig(&hard.solution(1), 1).expect("one of twelve");
        assert!(guesses >= 3);
        let easy = draw(9, (60, 60), 0);
        assert_eq!(easy.dig(&easy.solution(1), 1).unwrap().1, 0);
    }

    #[test]
    fn boards_without_or_with_many_solutions_are_told() {
        let shape = BoxShape::of_side(4).unwrap();
        let grid = |text: &str| Grid::new(4, 4, text.bytes().map(|c| c - b'0').collect()).unwrap();
        assert_eq!(solve_board(shape, &grid("1100000000000000")), None, "two equal digits in a row");
        assert_eq!(solve_board(shape, &grid("1230000400000000")), None, "no digit is left for a cell");
        assert!(!solve_board(shape, &grid("0000000000000000")).unwrap().is_unique);
        assert_eq!(BoxShape::of_side(6).map(|shape| (shape.rows(), shape.columns())), Some((2, 3)));
        assert_eq!(BoxShape::of_side(36), None);
    }
}
