//! [`Starts`]: what a log shows after a finding that only another command writes: words that programs begin with and
//! write at once, and lines of what stood before it; a script's loop, a scheduler's next job.

use std::collections::HashMap;

use crate::again::is_of_a_start;
use crate::error_words::is_error;
use crate::last_words::{is_closing, is_native_frame, is_trailer};
use crate::life::{has_fraction, letters_of};
use crate::line::Line;
use crate::progress::Progress;
use crate::text::has_phrase;
use crate::traceback::{HEAD, is_frame};

/// Lines that are kept of each kind.
const MOST: usize = 64;
/// Bytes that C and Python hold back of an output that goes to a file.
const HELD_BACK: usize = 8 << 10;
/// Letters of a line by which it is known again where it stood more than once before, and where it stood once.
const SHORTEST: usize = 3;
const SHORTEST_ONCE: usize = 12;
/// Lines of which the letters are kept, of a log of any length: what one command writes before it does its work.
const MOST_LETTERS: usize = 4096;

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
    "Loaded dependency [",
];
/// What Keras 2 writes to its errors as it is imported, which Python before 3.9 holds back, but not behind a traceback.
const OF_KERAS: &str = "Using TensorFlow backend";
/// The same, wherever it stands in the line.
const SAYS: &[&str] = &[
    "Started a local Ray instance",
    "App] Serving notebooks from local directory",
    "Some weights of the model checkpoint at ",
    " were not initialized from the model checkpoint at ",
    // Environment Modules 4.2 and later.
    "Loading requirement: ",
];

/// What stands between the tracebacks of one process.
const CHAINS: &[&str] = &["During handling of the above exception", "The above exception was the direct cause"];

/// What was seen, each in the order of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Lines that a program writes when it begins.
    pub(crate) begun: Vec<u64>,
    /// Heads of tracebacks of a program that had not got past its imports, and what Keras says at them.
    pub(crate) importing: Vec<u64>,
    /// Warnings of Python other than those of an end.
    pub(crate) warned: Vec<u64>,
    /// Lines with figures or steps that no shell, launcher or scheduler writes.
    pub(crate) figures: Vec<u64>,
    /// Lines like those before the last finding.
    pub(crate) familiar: Vec<u64>,
    /// Those of them that do not say the line before once more.
    pub(crate) begun_anew: Vec<u64>,
    /// Those of them that follow a finding at once.
    pub(crate) resumed: Vec<u64>,
    /// The first lines, which have no more bytes than a program holds back: of what it held back it had shown none.
    pub(crate) shown: u64,
}

#[derive(Default)]
pub(crate) struct Gatherer {
    /// The letters of the lines before the first finding, and how often each stood; `None` before anything was found.
    known: Option<HashMap<String, usize>>,
    /// The letters of the first lines since the last finding.
    recent: Vec<String>,
    /// The letters of the line before.
    before: String,
    /// The last finding's line.
    found: u64,
    /// The last stage of a script before the first finding: which, and of how many.
    stage: Option<(u32, u32)>,
    traceback: Opened,
    seen: Starts,
}

/// How far a traceback is read that may be of a program at its imports.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Opened {
    #[default]
    No,
    /// Another one comes that belongs to the one before.
    Chained,
    Head(u64),
    /// With a first frame of the program itself.
    Module(u64),
}

impl Gatherer {
    /// Learns what stood before `line`, in which a finding stands, of a log that begins with `head`.
    pub(crate) fn learn(&mut self, head: &[u8], line: u64) {
        let recent = std::mem::take(&mut self.recent);
        self.found = line;
        let known = self.known.get_or_insert_with(|| {
            let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
            let mut known = HashMap::new();
            let text = String::from_utf8_lossy(head);
            self.stage = text.lines().take(before).filter_map(stage_of).last();
            let lines = text.lines().take(before).filter(|text| !is_of_an_error(text));
            lines.for_each(|text| *known.entry(letters_of(text)).or_default() += 1);
            known
        });
        for letters in recent {
            if known.len() < MOST_LETTERS || known.contains_key(&letters) {
                *known.entry(letters).or_default() += 1;
            }
        }
    }

    /// Where the last finding stands.
    pub(crate) fn found_at(&mut self, line: u64) {
        self.found = line;
    }

    /// A line after a finding.
    pub(crate) fn line(&mut self, line: &Line, number: u64) {
        let text = line.text.as_str();
        if text.is_empty() {
            return;
        }
        self.follow(text, number);
        if is_of_an_error(text) {
            return;
        }
        let seen = &mut self.seen;
        let goes_on = |(at, of): (u32, u32)| self.stage.is_some_and(|(before, all)| all == of && at > before);
        if BEGINS.iter().any(|words| text.starts_with(words))
            || SAYS.iter().any(|words| has_phrase(text, words))
            || stage_of(text).is_some_and(goes_on)
        {
            keep(&mut seen.begun, number);
        }
        if text.starts_with(OF_KERAS) {
            keep(&mut seen.importing, number);
        }
        if is_warning(text) {
            keep(&mut seen.warned, number);
        } else if has_figures(text, number) {
            keep(&mut seen.figures, number);
        }
        let letters = letters_of(text);
        let stood = self.known.as_ref().and_then(|known| known.get(&letters)).copied().unwrap_or(0);
        let length = letters.chars().count();
        let is_known = (length >= SHORTEST_ONCE && stood > 0) || (length >= SHORTEST && stood > 1);
        // A line that is written over and over shows how far its program is, and begins none.
        let is_said_on = letters == self.before;
        if is_known && !is_trailer(text) && is_of_a_start(text) {
            keep(&mut seen.familiar, number);
            if !is_said_on {
                keep(&mut seen.begun_anew, number);
            }
            if number == self.found + 1 {
                keep(&mut seen.resumed, number);
            }
        }
        self.before.clone_from(&letters);
        if self.recent.len() < MOST_LETTERS {
            self.recent.push(letters);
        }
    }

    /// Finds tracebacks that begin where a program imports: who raised before, and says no more of it, is another process.
    fn follow(&mut self, text: &str, number: u64) {
        let is_own = || !text.starts_with("File \"<") && text.ends_with(", in <module>");
        let is_import = || text.starts_with("import ") || text.starts_with("from ");
        self.traceback = match self.traceback {
            Opened::Chained if has_phrase(text, HEAD) => Opened::No,
            _ if text.starts_with(HEAD) => Opened::Head(number),
            Opened::Head(head) if is_frame(text) && is_own() => Opened::Module(head),
            Opened::Module(head) if is_import() => {
                keep(&mut self.seen.importing, head);
                Opened::No
            }
            _ if CHAINS.iter().any(|words| text.starts_with(words)) => Opened::Chained,
            _ => Opened::No,
        };
    }

    pub(crate) fn finish(self) -> Starts {
        self.seen
    }
}

impl Starts {
    /// With the lines of `head`, with which the log begins, that a program could have held back.
    pub(crate) fn of_head(self, head: &[u8]) -> Self {
        let shown = head.get(..HELD_BACK).unwrap_or(head);
        Self { shown: memchr::memchr_iter(b'\n', shown).count() as u64, ..self }
    }

    /// How many of the lines come after `line`.
    pub(crate) fn after(lines: &[u64], line: u64) -> usize {
        lines.iter().filter(|own| **own > line).count()
    }
}

fn keep(lines: &mut Vec<u64>, number: u64) {
    // Of more, the last ones count.
    if lines.len() >= MOST {
        lines.remove(0);
    }
    if lines.last() != Some(&number) {
        lines.push(number);
    }
}

/// `[2/4] Evaluates`: what a script of several commands says before each.
fn stage_of(text: &str) -> Option<(u32, u32)> {
    const MOST_STAGES: u32 = 40;
    let (at, rest) = text.strip_prefix('[')?.split_once('/')?;
    let (of, says) = rest.split_once("] ")?;
    let (at, of) = (at.parse().ok()?, of.parse().ok()?);
    (at <= of && of <= MOST_STAGES && !has_fraction(says)).then_some((at, of))
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
    const METRICS: &[&str] = &["ccuracy", "loss", "recall", "auc", "rmse", "RMSE"];
    let is_row = has_fraction(text)
        && !is_closing(text)
        && !is_trailer(text)
        && !has_path(text)
        && (METRICS.iter().any(|words| has_phrase(text, words)) || !OTHERS.iter().any(|words| has_phrase(text, words)));
    is_row || Progress::of_line(text, number, None).is_some()
}

/// Whether a slash stands in it that is not between two figures.
fn has_path(text: &str) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let parts = |at: usize| is_digit(at.checked_sub(1).and_then(|at| bytes.get(at))) && is_digit(bytes.get(at + 1));
    memchr::memchr_iter(b'/', bytes).any(|at| !parts(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(head: &str, lines: &[&str]) -> Starts {
        let mut gatherer = Gatherer::default();
        gatherer.learn(head.as_bytes(), head.lines().count() as u64 + 1);
        for (text, number) in lines.iter().zip(100..) {
            gatherer.line(&Line::new(text.as_bytes()), number);
        }
        gatherer.finish()
    }

    #[test]
    fn of_a_log_of_any_length_a_page_of_letters_is_kept() {
        let word = |mut number: u64| {
            let mut letters = String::from("reads ");
            while number > 0 {
                letters.push(char::from(b'a' + (number % 26) as u8));
                number /= 26;
            }
            letters
        };
        let mut gatherer = Gatherer::default();
        for finding in 0..3 {
            gatherer.learn(b"", 1);
            for number in 0..2 * MOST_LETTERS as u64 {
                let text = word(finding * 100_000 + number);
                gatherer.line(&Line::new(text.as_bytes()), number);
            }
            assert_eq!(gatherer.recent.len(), MOST_LETTERS);
        }
        assert!(gatherer.known.is_some_and(|known| known.len() <= MOST_LETTERS));
    }

    #[test]
    fn what_only_another_command_writes_is_seen() {
        let begun = after(
            "[1/4] trains\n",
            &["[2/4] evaluates", "[1/4] trains", "[2/9] other", "wandb: Syncing run calm-sea-1"],
        );
        assert_eq!(begun.begun, [100, 103]);
        let figures = after(
            "",
            &[
                "Test set: Accuracy: 4642/10000 (46.42%)",
                "real 0m1.23s",
                "saved /a/1.2/x",
                "0.5378",
                "Max RSS memory: 1.2 GB",
            ],
        );
        assert_eq!(figures.figures, [100, 103]);
        let warned = after("", &["/a/b.py:7: FutureWarning: x", "/a/b.py:7: UserWarning: 3 leaked semaphores"]);
        assert_eq!(warned.warned, [100]);
        assert_eq!(after("i is 1\ni is 2\n", &["i is 3", "j is 3"]).familiar, [100]);
        assert_eq!(after("", &["Using TensorFlow backend.", "backend"]).importing, [100]);
        // How far a program is begins none.
        assert_eq!(after("i is 1\ni is 2\n", &["i is 3", "i is 4", "i is 5"]).begun_anew, [100]);
    }

    #[test]
    fn of_more_lines_the_last_ones_are_kept() {
        let lines: Vec<String> = (0..200).map(|at| format!("0.{at}1")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let seen = after("", &lines);
        assert_eq!((seen.figures.len(), seen.figures.last()), (MOST, Some(&299)));
    }
}
