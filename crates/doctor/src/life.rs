//! [`Life`]: signs that a job lives: steps around findings and at the end; good ends and new starts wherever they stand.

use crate::history::steps;
use crate::line::Line;
use crate::progress::{Progress, is_restart, is_success, is_tests_end};

/// Lines after a finding that are read for steps.
const WATCHED: usize = 400;
/// Steps that are kept.
const MOST_STEPS: usize = 512;
/// New starts and good ends that are kept; of more, the last takes the place of the one before.
const MOST_WORDS: usize = 512;

/// What says that a job went on.
#[derive(Default)]
pub(crate) struct Life {
    /// Lines that are still read for steps.
    watched: usize,
    steps: Vec<Progress>,
    restarts: Vec<u64>,
    successes: Vec<u64>,
}

/// What was seen, each in the order of lines.
pub(crate) struct Seen {
    pub(crate) steps: Vec<Progress>,
    pub(crate) restarts: Vec<u64>,
    pub(crate) successes: Vec<u64>,
}

impl Life {
    /// Whether the next line must be read.
    pub(crate) const fn is_watching(&self) -> bool {
        self.watched > 0
    }

    /// Reads the lines that follow.
    pub(crate) const fn watch(&mut self) {
        self.watched = WATCHED;
    }

    /// A line after a finding.
    pub(crate) fn line(&mut self, line: &Line, number: u64) {
        if self.watched > 0 {
            self.watched -= 1;
            Progress::of_line(&line.text, number, line.rank).into_iter().for_each(|step| self.step(step));
            // Tests may print tracebacks.
            if is_tests_end(&line.text) {
                keep(&mut self.successes, number);
            }
        }
    }

    /// A line with words that trainers and launchers use when all is well or starts anew.
    pub(crate) fn words(&mut self, line: &Line, number: u64) {
        if is_restart(line) {
            keep(&mut self.restarts, number);
        } else if is_success(line) {
            keep(&mut self.successes, number);
        }
    }

    /// The last lines before an exception that did not end the program: it may have ended well before.
    pub(crate) fn remember(&mut self, before: &str, last: u64) {
        const READ: usize = 200;
        for (text, number) in before.lines().rev().zip((1..=last).rev()).take(READ) {
            let line = Line::new(text.as_bytes());
            if is_success(&line) {
                keep(&mut self.successes, number);
            }
        }
    }

    /// A step, wherever it was seen.
    pub(crate) fn step(&mut self, step: Progress) {
        if self.steps.len() < MOST_STEPS && !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    /// With the steps of the log's last lines, `lines` being their number.
    pub(crate) fn finish(mut self, tail: &str, lines: u64) -> Seen {
        steps(tail, lines).into_iter().for_each(|step| self.step(step));
        self.steps.sort_by_key(|step| step.line);
        Seen { steps: self.steps, restarts: self.restarts, successes: self.successes }
    }
}

fn keep(lines: &mut Vec<u64>, number: u64) {
    if lines.len() >= MOST_WORDS {
        lines.pop();
    }
    if lines.last() != Some(&number) {
        lines.push(number);
    }
}
