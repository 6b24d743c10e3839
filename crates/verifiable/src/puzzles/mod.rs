//! Puzzles on grids, for models that answer every cell at once: Sudoku and mazes that are made from seeds, readers of published files,
//! views of a grid that change nothing but its looks, and votes over answers to several views.

mod arc;
mod encoding;
mod files;
mod grid;
mod maze;
mod set;
mod solver;
mod sudoku;
mod symmetry;
mod view;
mod votes;

pub use arc::{ArcTask, read_arc_task};
pub use encoding::{ARC_SIDE, Encoding};
pub use files::{read_maze_lines, read_sudoku_lines};
pub use grid::Grid;
pub use maze::{MazeDraw, make_maze};
pub use set::{Example, MadeOf, PuzzleError, PuzzleSet};
pub use solver::{Solved, solve_board};
pub use sudoku::{BoxShape, SudokuDraw, is_solution_of};
pub use view::{Looks, View};
pub use votes::{Votes, pass_at};
