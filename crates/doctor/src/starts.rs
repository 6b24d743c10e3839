//! [`Starts`]: what a log shows after a finding that only another command writes: words that programs begin with and
//! write at once, and lines of what stood before it; a script's loop, a scheduler's next job.

use std::collections::HashMap;

use crate::error_words::is_error;
use crate::last_words::{is_closing, is_native_frame, is_trailer};
use crate::life::{has_fraction, letters_of};
use crate::line::Line;
use crate::progress::Progress;
use crate::text::has_phrase;
use crate::traceback::{HEAD, is_frame};

/// Lines that are kept of each kind.
const MOST: usize = 64;
/// Letters of a line by which it is known again where it stood more than once before, and where it stood once.
const SHORTEST: usize = 3;
const SHORTEST_ONCE: usize = 12;

/// What begins a line that is written once, when a command begins, and that is not held back as output is.
const BEGINS: &[&str] = &[
    "nohup: ignoring input",
    "nohup: 忽略输入",
    "wandb: Currently logged in as: ",
    "wandb: Tracking run with wandb version ",
    "wandb: Syncing run ",
    "The following values were not passed to `accelerate launch`",
    "Lmod is automatically replacing ",
    "Due to MODULEPATH changes, the following have been reloaded",
    "The following have been reloaded with a version change",
];
/// The same, wherever it stands in the line.
const SAYS: &[&str] = &[
    "Started a local Ray instance",
    "Some weights of the model checkpoint at ",
    " were not initialized from the model checkpoint at ",
];

/// What was seen, each in the order of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Lines that a program writes when it begins.
    pub(crate) begun: Vec<u64>,
    /// Warnings of Python other than those of an end.
    pub(crate) warned: Vec<u64>,
    /// Lines with figures or steps that no shell, launcher or scheduler writes.
    pub(crate) figures: Vec<u64>,
    /// Lines like those before the first finding.
    pub(crate) familiar: Vec<u64>,
}

/// Gathers [`Starts`].
#[derive(Default)]
pub(crate) struct Gatherer {
    /// The letters of the lines before the first finding, and how often each stood; `None` before anything was found.
    known: Option<HashMap<String, usize>>,
    seen: Starts,
}

impl Gatherer {
    /// Learns what stood before `line`, in which the first finding stands, of a log that begins with `head`.
    pub(crate) fn learn(&mut self, head: &[u8], line: u64) {
        self.known.get_or_insert_with(|| {
            let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
            let mut known = HashMap::new();
            let text = String::from_utf8_lossy(head);
            let lines = text.lines().take(before).filter(|text| !is_of_an_error(text));
            lines.for_each(|text| *known.entry(letters_of(text)).or_default() += 1);
            known
        });
    }

    /// A line after a finding.
    pub(crate) fn line(&mut self, line: &Line, number: u64) {
        let text = line.text.as_str();
        if text.is_empty() || is_of_an_error(text) {
            return;
        }
        let seen = &mut self.seen;
        if BEGINS.iter().any(|words| text.starts_with(words)) || SAYS.iter().any(|words| has_phrase(text, words)) {
            keep(&mut seen.begun, number);
        }
        if is_warning(text) {
            keep(&mut seen.warned, number);
        } else if has_figures(text, number) {
            keep(&mut seen.figures, number);
        }
        let letters = letters_of(text);
        let stood = self.known.as_ref().and_then(|known| known.get(&letters)).copied().unwrap_or(0);
        let length = letters.chars().count();
        if !is_trailer(text) && (length >= SHORTEST_ONCE && stood > 0 || length >= SHORTEST && stood > 1) {
            keep(&mut seen.familiar, number);
        }
    }

    pub(crate) fn finish(self) -> Starts {
        self.seen
    }
}

impl Starts {
    /// How many of the lines come after `line`.
    pub(crate) fn after(lines: &[u64], line: u64) -> usize {
        lines.iter().filter(|own| **own > line).count()
    }
}

fn keep(lines: &mut Vec<u64>, number: u64) {
    // Of more, the last takes the place of the one before: what matters is what comes last.
    if lines.len() >= MOST {
        lines.pop();
    }
    if lines.last() != Some(&number) {
        lines.push(number);
    }
}

fn is_of_an_error(text: &str) -> bool {
    is_error(text) || is_frame(text) || is_native_frame(text) || has_phrase(text, HEAD)
}

/// `/a/b.py:12: FutureWarning: text`, but not what interpreters warn of as they go.
fn is_warning(text: &str) -> bool {
    const OF_AN_END: &[&str] = &[
        "ResourceWarning",
        "resource_tracker",
        "leaked",
        "leanup",
        "shutdown",
        "destroy",
        "closed",
        "finali",
        "weakref",
    ];
    let of_python = has_phrase(text, ".py:") && has_phrase(text, "Warning: ");
    of_python && !OF_AN_END.iter().any(|words| has_phrase(text, words))
}

/// Whether a program at work wrote the line: a step, or figures that are not of times, sizes and versions.
fn has_figures(text: &str, number: u64) -> bool {
    const OTHERS: &[&str] = &[
        "ime", "emory", "ffici", "CPU", "job", "Job", "ersion", "lapsed", "real", "user", "sys", "cput", "ode", "ost",
        "NCCL", "ip ", "IP ", "http", "address",
    ];
    let is_row = has_fraction(text)
        && !is_closing(text)
        && !is_trailer(text)
        && !text.contains('/')
        && !OTHERS.iter().any(|words| has_phrase(text, words));
    is_row || Progress::of_line(text, number, None).is_some()
}
