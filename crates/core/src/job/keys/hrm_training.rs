//! Keys of `[hrm]`: what HRM learns from, and how its puzzle table learns. They change no byte; `tonnage train` reads them.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const PUZZLE_KINDS: Kind = Kind::Choice(&[
    ("sudoku", "boards with one solution"),
    ("maze", "the way from start to goal"),
    ("arc", "tasks of the Abstraction and Reasoning Corpus, from files"),
]);

/// Puzzles, and views, at most.
const MANY: u64 = 1 << 22;
const MOST_CELLS: u64 = 625;

pub(super) const KEYS: [Key; 11] = [
    Key {
        name: names::HRM_PUZZLES,
        kind: PUZZLE_KINDS,
        default: Default::Fixed("\"sudoku\"", "HRM's example for one GPU"),
        doc: "what is solved; read from `train_files` where the job names some, else made",
        example: "\"maze\"",
    },
    Key {
        name: names::HRM_SIDE,
        kind: Kind::Size { min: 2, max: 64 },
        default: Default::Rule("9 of a Sudoku, 30 of a maze"),
        doc: "cells of a side of a Sudoku or a maze",
        example: "6",
    },
    Key {
        name: names::HRM_TRAIN_PUZZLES,
        kind: Kind::Size { min: 1, max: MANY },
        default: Default::Fixed("1000", "as many as HRM's examples have"),
        doc: "puzzles that are made to train on",
        example: "4000",
    },
    Key {
        name: names::HRM_EVAL_PUZZLES,
        kind: Kind::Size { min: 0, max: MANY },
        default: Default::Fixed("256", "a standard error of three points"),
        doc: "puzzles that are held out: no symmetric copy of one is trained on; 0 evaluates never",
        example: "512",
    },
    Key {
        name: names::HRM_CLUES_MIN,
        kind: Kind::Size { min: 0, max: MOST_CELLS },
        default: Default::Rule("a third of the cells"),
        doc: "clues that a Sudoku has at least",
        example: "12",
    },
    Key {
        name: names::HRM_CLUES_MAX,
        kind: Kind::Size { min: 0, max: MOST_CELLS },
        default: Default::Rule("half of the cells"),
        doc: "clues that a Sudoku has at most, where so few leave one solution",
        example: "18",
    },
    Key {
        name: names::HRM_GUESSES_MIN,
        kind: Kind::Size { min: 0, max: MANY },
        default: Default::Fixed("0", "every board with one solution"),
        doc: "guesses that a Sudoku takes at least, of a solver that takes the cell with the fewest candidates first",
        example: "3",
    },
    Key {
        name: names::HRM_AUGMENTATIONS,
        kind: Kind::Size { min: 0, max: MANY },
        default: Default::Fixed("0", "the puzzle as it is"),
        doc: "views of each puzzle that are trained on beside it: digits renamed, rows and columns changed, turned, recoloured",
        example: "1000",
    },
    Key {
        name: names::HRM_EVAL_VIEWS,
        kind: Kind::Size { min: 1, max: MANY },
        default: Default::Fixed("1", "the puzzle as it is"),
        doc: "views of each held-out puzzle whose answers are voted on",
        example: "8",
    },
    Key {
        name: names::HRM_PUZZLE_EMB_LR,
        kind: Kind::Number { min: 0.0, max: 1e3 },
        default: Default::Rule(names::LEARNING_RATE),
        doc: "learning rate of the puzzle table, which rises and falls with the other",
        example: "1e-2",
    },
    Key {
        name: names::HRM_PUZZLE_EMB_WEIGHT_DECAY,
        kind: Kind::Number { min: 0.0, max: 1e3 },
        default: Default::Rule(names::WEIGHT_DECAY),
        doc: "decay of the rows of the puzzle table that a batch reads",
        example: "0.1",
    },
];
