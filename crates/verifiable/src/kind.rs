//! [`Kind`]: what a file of `kinds` says of its questions.

use tonnage_core::random::SplitMix64;

use crate::extract::AnswerForm;

/// A kind of question, graded by levels.
#[derive(Debug)]
pub struct Kind {
    /// As job files name it; reasoning-gym's name where it has the like.
    pub name: &'static str,
    /// What is asked, in a line.
    pub about: &'static str,
    /// The hardest level; the easiest is 1.
    pub levels: u32,
    /// Whether question and answer are a few characters, for models that are trained from nothing.
    pub is_terse: bool,
    pub(crate) make: fn(&mut SplitMix64, u32) -> Made,
    /// A question that another program made, from its text and the answer that it gives, if any.
    pub(crate) adopt: fn(&str, Option<&str>) -> Option<Made>,
    pub(crate) check: fn(&Question, &str) -> bool,
}

/// What a kind makes of random numbers.
pub(crate) struct Made {
    pub text: String,
    pub answer: String,
    /// What the checker needs beside both, where it compares no answers.
    pub facts: String,
}

impl Made {
    pub(crate) fn new(text: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { text: text.into(), answer: answer.into(), facts: String::new() }
    }
}

/// A question with an answer that its checker accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name of its [`Kind`].
    pub kind: &'static str,
    /// From 1 to the kind's `levels`.
    pub level: u32,
    /// Makes it anew ([`Kind::question`]).
    pub seed: u64,
    /// What is asked.
    pub text: String,
    /// One right answer; there may be others.
    pub answer: String,
    pub(crate) facts: String,
}

impl Kind {
    /// The question of a seed. A level beyond the kind's own is the nearest one.
    pub fn question(&self, level: u32, seed: u64) -> Question {
        let level = level.clamp(1, self.levels);
        let mut random = SplitMix64::new(seed);
        let Made { text, answer, facts } = (self.make)(&mut random, level);
        Question { kind: self.name, level, seed, text, answer, facts }
    }

    /// A question that another program made, with the answer that it gives, if any; `None` where this kind's checker accepts no answer
    /// that it knows.
    pub fn foreign_question(&self, text: &str, answer: Option<&str>) -> Option<Question> {
        let Made { text, answer, facts } = (self.adopt)(text, answer)?;
        let question = Question { kind: self.name, level: 1, seed: 0, text, answer, facts };
        self.is_right(&question, &question.answer).then_some(question)
    }

    /// Whether an answer, without anything around it, is right. A question of another kind has no right answer here.
    pub fn is_right(&self, question: &Question, answer: &str) -> bool {
        question.kind == self.name && (self.check)(question, answer)
    }

    /// The reward of a completion: 1 where the answer in it is right, else 0. There is no floor.
    pub fn reward(&self, question: &Question, completion: &str, form: AnswerForm) -> f64 {
        let is_right = form.answer(completion).is_some_and(|answer| self.is_right(question, answer));
        f64::from(u8::from(is_right))
    }
}

/// [`Kind::adopt`] of kinds whose checker compares with the answer.
pub(crate) fn adopt_answer(text: &str, answer: Option<&str>) -> Option<Made> {
    Some(Made::new(text, answer?))
}

/// A checker for kinds with one right spelling.
pub(crate) fn is_same_text(question: &Question, answer: &str) -> bool {
    answer == question.answer
}
