//! [`PuzzleSet`]: what is trained on and what is held out, made or read.

use std::collections::BTreeSet;
use std::fmt;

use super::arc::ArcTask;
use super::encoding::Encoding;
use super::grid::Grid;
use super::maze::{MazeDraw, make_maze};
use super::sudoku::{BoxShape, SudokuDraw};
use super::symmetry::invariant;
use super::view::{Looks, View};
use crate::draw::{hash_bytes, mix_bits};

/// One in so many boards is held out, by a hash of it.
const HELD_OUT: u64 = 5;
/// Boards that are tried before the first is there, and more for each that was made: a fair draw finds one in 25 held out.
const FIRST_TRIES: u64 = 1000;
const TRIES_EACH: u64 = 200;

/// Why puzzles cannot be made or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PuzzleError(String);

impl PuzzleError {
    pub(super) const fn new(problem: String) -> Self {
        Self(problem)
    }
}

impl fmt::Display for PuzzleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PuzzleError {}

/// A puzzle and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// What to call it.
    pub name: String,
    /// Which task it is of, from 0.
    pub task: u64,
    /// What is asked.
    pub input: Grid,
    /// What is right.
    pub output: Grid,
    /// How hard, in words.
    pub difficulty: String,
}

/// What a set is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeOf {
    /// Boards that are made.
    Sudoku(SudokuDraw),
    /// Mazes that are made.
    Maze(MazeDraw),
}

/// Examples to train on and to evaluate on, with how they look.
#[derive(Clone, Debug)]
pub struct PuzzleSet {
    /// What is trained on, in no order of hardness.
    pub train: Vec<Example>,
    /// What is never trained on, in any of its looks where they can be compared.
    pub eval: Vec<Example>,
    /// How grids become tokens, and back.
    pub encoding: Encoding,
    /// What of its looks may change.
    pub looks: Looks,
    /// Tasks that have a row of the puzzle table for each view; 0 where all puzzles share the first row.
    pub tasks: u64,
}

impl PuzzleSet {
    /// Makes so many of each from a seed. Of Sudokus neither a symmetric copy of a board nor its solution is in both.
    ///
    /// # Errors
    /// When there are not as many.
    pub fn make(made_of: MadeOf, seed: u64, train: u64, eval: u64) -> Result<Self, PuzzleError> {
        let (encoding, looks) = match made_of {
            MadeOf::Sudoku(draw) => {
                (Encoding::Cells { side: draw.shape.size(), symbols: draw.shape.size() + 1 }, Looks::Sudoku(draw.shape))
            }
            MadeOf::Maze(draw) => (Encoding::Cells { side: draw.side, symbols: 5 }, Looks::Maze),
        };
        let mut seen = BTreeSet::new();
        let mut examples = |is_held_out: bool, wanted: u64| {
            let mut made: Vec<Example> = Vec::new();
            let mut at = 0;
            while (made.len() as u64) < wanted {
                if at >= FIRST_TRIES + TRIES_EACH * made.len() as u64 {
                    let few = made.len();
                    let problem = format!("only {few} of {wanted} could be made: an easier kind, or fewer of them");
                    return Err(PuzzleError(problem));
                }
                let place = mix_bits(seed ^ mix_bits(at.wrapping_mul(2) + u64::from(is_held_out)));
                at += 1;
                let Some(example) = one_of(made_of, place, is_held_out, made.len()) else { continue };
                if seen.insert(example.input.clone()) {
                    made.push(example);
                }
            }
            Ok(made)
        };
        Ok(Self { train: examples(false, train)?, eval: examples(true, eval)?, encoding, looks, tasks: 0 })
    }

    /// Of lines that were read, the first `eval` of those that a hash of their board holds out.
    pub fn of_sudokus(shape: BoxShape, examples: Vec<Example>, eval: usize) -> Self {
        let encoding = Encoding::Cells { side: shape.size(), symbols: shape.size() + 1 };
        Self::split(examples, eval, encoding, Looks::Sudoku(shape), |example| invariant(shape, &example.input))
    }

    /// Of mazes that were read.
    pub fn of_mazes(side: usize, examples: Vec<Example>, eval: usize) -> Self {
        let encoding = Encoding::Cells { side, symbols: 5 };
        Self::split(examples, eval, encoding, Looks::Maze, |example| example.input.cells.clone())
    }

    fn split(
        examples: Vec<Example>,
        eval: usize,
        encoding: Encoding,
        looks: Looks,
        key: impl Fn(&Example) -> Vec<u8>,
    ) -> Self {
        let (mut held_out, train): (Vec<_>, Vec<_>) =
            examples.into_iter().partition(|example| is_held_out(&key(example)));
        held_out.truncate(eval);
        Self { train, eval: held_out, encoding, looks, tasks: 0 }
    }

    /// Of ARC's tasks: demonstrations are trained on, tests with answers are held out.
    pub fn of_arc(tasks: &[(String, ArcTask)]) -> Self {
        let (mut train, mut eval) = (Vec::new(), Vec::new());
        for (task, (name, pairs)) in (0..).zip(tasks) {
            let example = |at: usize, input: &Grid, output: &Grid| Example {
                name: format!("{name}[{at}]"),
                task,
                input: input.clone(),
                output: output.clone(),
                difficulty: String::new(),
            };
            train.extend(pairs.train.iter().enumerate().map(|(at, (input, output))| example(at, input, output)));
            let answered = pairs.test.iter().enumerate();
            eval.extend(answered.filter_map(|(at, (input, output))| Some(example(at, input, output.as_ref()?))));
        }
        Self { train, eval, encoding: Encoding::Canvas, looks: Looks::Arc, tasks: tasks.len() as u64 }
    }

    /// The view of a number of a task: 0 is the task as it is. Of sets without tasks each example has views of its own.
    pub fn view(&self, own: u64, number: u64) -> View {
        if number == 0 { View::itself() } else { View::of_seed(self.looks, mix_bits(own.rotate_left(32) ^ number)) }
    }

    /// The row of the puzzle table that a view of a task has; 0 is for puzzles without one.
    pub const fn identifier(&self, task: u64, view: u64, views: u64) -> u64 {
        if self.tasks == 0 { 0 } else { 1 + task * views + view }
    }

    /// Rows that the puzzle table needs.
    pub const fn identifiers(&self, views: u64) -> u64 {
        1 + self.tasks * views
    }
}

fn is_held_out(key: &[u8]) -> bool {
    mix_bits(hash_bytes(key)).is_multiple_of(HELD_OUT)
}

fn one_of(made_of: MadeOf, seed: u64, wants_held_out: bool, number: usize) -> Option<Example> {
    match made_of {
        MadeOf::Sudoku(draw) => {
            let solution = draw.solution(seed);
            // Both: neither a board like it nor its solution is on the other side.
            if is_held_out(&solution.cells) != wants_held_out {
                return None;
            }
            let (board, guesses) = draw.dig(&solution, mix_bits(seed))?;
            let fits = is_held_out(&invariant(draw.shape, &board)) == wants_held_out;
            fits.then(|| Example {
                name: format!("sudoku-{number}"),
                task: 0,
                input: board,
                output: solution,
                difficulty: format!("{guesses} guesses"),
            })
        }
        MadeOf::Maze(draw) => {
            let (input, output) = make_maze(draw, seed)?;
            let steps = output.cells.iter().filter(|cell| **cell >= 2).count();
            (is_held_out(&input.cells) == wants_held_out).then(|| Example {
                name: format!("maze-{number}"),
                task: 0,
                input,
                output,
                difficulty: format!("way of {steps}"),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_out_is_not_trained_on_in_any_look() {
        let shape = BoxShape::of_side(6).unwrap();
        let draw = SudokuDraw { shape, clues: (12, 18), least_guesses: 0 };
        let set = PuzzleSet::make(MadeOf::Sudoku(draw), 7, 30, 8).unwrap();
        assert_eq!((set.train.len(), set.eval.len()), (30, 8));
        let looks = |examples: &[Example]| -> BTreeSet<Vec<u8>> {
            examples.iter().map(|example| invariant(shape, &example.input)).collect()
        };
        assert!(looks(&set.train).is_disjoint(&looks(&set.eval)), "a copy of a board would have the same");
        let solutions = |examples: &[Example]| -> BTreeSet<Grid> {
            examples.iter().map(|example| example.output.clone()).collect()
        };
        assert!(solutions(&set.train).is_disjoint(&solutions(&set.eval)));
        let again = PuzzleSet::make(MadeOf::Sudoku(draw), 7, 30, 8).unwrap();
        assert_eq!((again.train, again.eval), (set.train, set.eval));
        let impossible = SudokuDraw { shape: BoxShape::of_side(4).unwrap(), clues: (16, 16), least_guesses: 1 };
        let error = PuzzleSet::make(MadeOf::Sudoku(impossible), 7, 1, 0).unwrap_err().to_string();
        assert!(error.contains("only 0 of 1"), "{error}");
    }

    #[test]
    fn tasks_of_arc_have_a_row_for_each_view() {
        let grid = |symbol| Grid::new(1, 2, vec![symbol, 0]).unwrap();
        let task = ArcTask { train: vec![(grid(1), grid(2))], test: vec![(grid(3), Some(grid(4))), (grid(5), None)] };
        let set = PuzzleSet::of_arc(&[("a".to_owned(), task.clone()), ("b".to_owned(), task)]);
        assert_eq!((set.train.len(), set.eval.len(), set.identifiers(9)), (2, 2, 19));
        assert_eq!((set.identifier(0, 0, 9), set.identifier(1, 8, 9)), (1, 18));
        assert_eq!(set.view(5, 0), View::itself());
        assert_eq!(set.view(5, 3), set.view(5, 3));
    }
}
