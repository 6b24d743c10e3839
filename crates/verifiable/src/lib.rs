//! Verifiable tasks: [`Kind`]s of [`Question`]s that a seed decides, each with an exact checker of answers. Pure: no files, clock or
//! environment.
//!
//! A question is known by its kind, level and seed alone, so that who receives a stranger's completions makes the question anew and
//! believes none of its text. Training and evaluation never share a question ([`Split`]).

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod draw;
mod extract;
mod guess;
mod kind;
mod kinds;
pub mod puzzles;
mod reading;

pub use draw::{Draw, Split, seed_of};
pub use extract::{AnswerForm, MOST_ANSWER_BYTES, MOST_COMPLETION_BYTES};
pub use guess::{Guess, constant_guess};
pub use kind::{Kind, Question};
pub use kinds::{KINDS, find_kind};
