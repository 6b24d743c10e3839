//! [`View`]: another look of the same puzzle, and the way back.

use tonnage_core::random::SplitMix64;

use super::grid::Grid;
use super::sudoku::{BoxShape, shuffle};

/// What may be changed of a puzzle's looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// Names of digits; rows within bands, and bands; columns within stacks, and stacks; of square boxes, rows and columns.
    Sudoku(BoxShape),
    /// The eight turns and flips of a square.
    Maze,
    /// The eight turns and flips, and all colours but black (0).
    Arc,
}

/// One of the looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// What each symbol becomes; empty for itself.
    symbols: Vec<u8>,
    /// Where each row and column comes from; empty for its own place.
    rows: Vec<usize>,
    columns: Vec<usize>,
    quarter_turns: usize,
    is_transposed: bool,
}

impl View {
    /// The puzzle as it is.
    pub const fn itself() -> Self {
        Self { symbols: Vec::new(), rows: Vec::new(), columns: Vec::new(), quarter_turns: 0, is_transposed: false }
    }

    /// One that a seed decides.
    pub fn of_seed(looks: Looks, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        match looks {
            Looks::Sudoku(shape) => Self {
                symbols: renamed(shape.size(), &mut random),
                rows: regrouped(shape.size(), shape.rows(), &mut random),
                columns: regrouped(shape.size(), shape.columns(), &mut random),
                quarter_turns: 0,
                is_transposed: shape.rows() == shape.columns() && random.below(2) == 1,
            },
            Looks::Maze | Looks::Arc => {
                let symbols = if looks == Looks::Arc { renamed(9, &mut random) } else { Vec::new() };
                let (quarter_turns, is_transposed) = (random.index_below(4), random.below(2) == 1);
                Self { symbols, rows: Vec::new(), columns: Vec::new(), quarter_turns, is_transposed }
            }
        }
    }

    /// The grid in this view.
    pub fn apply(&self, grid: &Grid) -> Grid {
        let from = |places: &[usize], at: usize| places.get(at).copied().unwrap_or(at);
        let moved = grid
            .with_symbols(&self.symbols)
            .looked_up(grid.height, grid.width, |row, column| (from(&self.rows, row), from(&self.columns, column)));
        let turned = (0..self.quarter_turns).fold(moved, |grid, _| quarter_turn(&grid));
        if self.is_transposed { transposed(&turned) } else { turned }
    }

    /// The grid whose view this is.
    pub fn undo(&self, grid: &Grid) -> Grid {
        let upright = if self.is_transposed { transposed(grid) } else { grid.clone() };
        let turned = (0..(4 - self.quarter_turns) % 4).fold(upright, |grid, _| quarter_turn(&grid));
        let to = |places: &[usize], at: usize| places.iter().position(|from| *from == at).unwrap_or(at);
        let moved = turned
            .looked_up(turned.height, turned.width, |row, column| (to(&self.rows, row), to(&self.columns, column)));
        let mut symbols: Vec<u8> = (0..=u8::try_from(self.symbols.len()).unwrap_or(u8::MAX)).collect();
        for (from, to) in self.symbols.iter().enumerate() {
            symbols[usize::from(*to)] = u8::try_from(from).unwrap_or(u8::MAX);
        }
        moved.with_symbols(&symbols[..self.symbols.len()])
    }
}

/// 0 stays, 1 to `most` change names.
fn renamed(most: usize, random: &mut SplitMix64) -> Vec<u8> {
    let mut symbols: Vec<u8> = (0..=u8::try_from(most).unwrap_or(u8::MAX)).collect();
    shuffle(&mut symbols[1..], random);
    symbols
}

/// Groups change places, and members within each.
fn regrouped(size: usize, group: usize, random: &mut SplitMix64) -> Vec<usize> {
    let mut groups: Vec<Vec<usize>> =
        (0..size).step_by(group.max(1)).map(|first| (first..first + group).collect()).collect();
    groups.iter_mut().for_each(|members| shuffle(members, random));
    shuffle(&mut groups, random);
    groups.concat()
}

fn quarter_turn(grid: &Grid) -> Grid {
    let (height, width) = (grid.width, grid.height);
    grid.looked_up(height, width, |row, column| (grid.height - 1 - column, row))
}

fn transposed(grid: &Grid) -> Grid {
    grid.looked_up(grid.width, grid.height, |row, column| (column, row))
}

#[cfg(test)]
mod tests {
    use super::super::solver::solve_board;
    use super::super::sudoku::SudokuDraw;
    use super::*;

    #[test]
    fn every_view_has_its_way_back() {
        let grid = Grid::new(3, 5, (0..15).map(|cell| cell % 10).collect()).unwrap();
        let all: Vec<Grid> = (0..64)
            .map(|seed| {
                let view = View::of_seed(Looks::Arc, seed);
                assert_eq!(view.undo(&view.apply(&grid)), grid, "{view:?}");
                view.apply(&grid)
            })
            .collect();
        assert!(all.iter().any(|view| view.height == 5) && all.iter().any(|view| view.height == 3));
        let black = |grid: &Grid| grid.cells.iter().filter(|cell| **cell == 0).count();
        assert!(all.iter().all(|view| black(view) == black(&grid)), "black keeps its name");
    }

    #[test]
    fn a_view_of_a_sudoku_is_one() {
        for side in [4, 6, 9] {
            let shape = BoxShape::of_side(side).unwrap();
            let draw = SudokuDraw { shape, clues: (side * side / 2, side * side / 2), least_guesses: 0 };
            let solution = draw.solution(3);
            let (board, _) = draw.dig(&solution, 3).unwrap();
            for seed in 0..30 {
                let view = View::of_seed(Looks::Sudoku(shape), seed);
                let solved = solve_board(shape, &view.apply(&board)).expect("it keeps the rules");
                assert!(solved.is_unique && solved.solution == view.apply(&solution), "side {side}, {view:?}");
                assert_eq!(view.undo(&view.apply(&board)), board);
            }
        }
    }
}
