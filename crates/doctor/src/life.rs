//! [`Life`]: signs that a job lives: steps around findings and at the end; good ends and new starts wherever they stand.

use crate::again::{Again, Written};
use crate::error_words::is_error;
use crate::history::steps_before;
use crate::last_words::is_closing;
use crate::line::Line;
use crate::progress::{Progress, is_restart, is_success, is_tests_end};
use crate::stamp::Stamp;
use crate::starts::{Gatherer, Starts};
use crate::text::has_phrase;

/// Lines after a finding that are read for steps.
const WATCHED: usize = 600;
/// Lines between two of many alike after which what follows the second is read too: a fifth of a log at most.
const FAR: u64 = 5 * WATCHED as u64;
/// Steps that are kept.
const MOST_STEPS: usize = 512;
/// New starts and good ends that are kept; of more, the last takes the place of the one before.
const MOST_WORDS: usize = 512;

/// What a program says once, when it begins: Keras, TensorFlow.
const OPENINGS: &[&str] = &["Using TensorFlow backend.", "Successfully opened dynamic library libcudart"];

/// Kinds of rows that are told apart.
const MOST_ROWS: usize = 8;

/// Letters of a line by which it is known again, and how many characters are looked at.
const SHORTEST_OPENING: usize = 12;
const LONGEST_OPENING: usize = 200;

/// The very first lines, come again.
struct Reopened(Again);

impl Default for Reopened {
    fn default() -> Self {
        Self(Again::loose())
    }
}

/// What says that a job went on.
#[derive(Default)]
pub(crate) struct Life {
    /// Lines that are still read for steps.
    watched: usize,
    steps: Vec<Progress>,
    restarts: Vec<u64>,
    successes: Vec<u64>,
    new_runs: Vec<(u64, Stamp)>,
    passed_over: Vec<u64>,
    begun: Vec<u64>,
    programs: Vec<u64>,
    logged: Vec<u64>,
    alive: Vec<u64>,
    next: Vec<u64>,
    again: Again,
    reopened: Reopened,
    starts: Gatherer,
    written: Written,
    past: u64,
    /// The line of the last finding.
    last_found: u64,
    /// Rows seen after a finding: their letters, and the first number of the last.
    rows: Vec<(String, u64)>,
    /// The letters of the log's first line that has a time; empty where it has none.
    opening: Option<String>,
}

/// What was seen, each in the order of lines.
pub(crate) struct Seen {
    pub(crate) steps: Vec<Progress>,
    pub(crate) restarts: Vec<u64>,
    pub(crate) successes: Vec<u64>,
    pub(crate) new_runs: Vec<(u64, Stamp)>,
    pub(crate) passed_over: Vec<u64>,
    pub(crate) begun: Vec<u64>,
    pub(crate) programs: Vec<u64>,
    pub(crate) logged: Vec<u64>,
    pub(crate) alive: Vec<u64>,
    pub(crate) next: Vec<u64>,
    pub(crate) again: Vec<u64>,
    pub(crate) reopened: Vec<u64>,
    pub(crate) starts: Starts,
    pub(crate) past: u64,
}

impl Life {
    /// Whether the next line must be read.
    pub(crate) const fn is_watching(&self) -> bool {
        self.watched > 0
    }

    /// Reads the lines that follow `line`, of a log that begins with `head`.
    pub(crate) fn watch(&mut self, head: &[u8], line: u64) {
        self.watched = WATCHED;
        self.written = Written::default();
        self.last_found = line;
        self.again.learn(head, line);
        self.reopened.0.learn(head, line);
        self.starts.learn(head, line);
        self.opening.get_or_insert_with(|| opening(head));
    }

    /// Reads what follows another one of many alike in `line`, where they are far apart.
    pub(crate) fn watch_far(&mut self, head: &[u8], line: u64) {
        if line > self.last_found + FAR {
            self.watch(head, line);
        }
        self.last_found = line;
        self.starts.found_at(line);
    }

    /// Whether the line is the log's first one, written again: then another run may have begun.
    fn begins_again(&mut self, line: &Line, number: u64) {
        let is_opening = |opening: &String| !opening.is_empty() && letters_of(&line.text) == *opening;
        let stamp = || line.stamp.or_else(|| Stamp::of_line(&line.text));
        let known = self.new_runs.iter().any(|(known, _)| *known == number);
        if !known && self.opening.as_ref().is_some_and(is_opening) && self.new_runs.len() < MOST_WORDS {
            self.new_runs.extend(stamp().map(|stamp| (number, stamp)));
        }
    }

    /// A line after a finding.
    pub(crate) fn line(&mut self, line: &Line, number: u64) {
        if self.watched > 0 {
            self.watched -= 1;
            let step = Progress::of_line(&line.text, number, line.rank).or_else(|| self.row(line, number));
            step.into_iter().for_each(|step| self.step(step));
            if is_alive(line) {
                keep_first(&mut self.alive, number);
            }
            self.begins_again(line, number);
            self.again.line(&line.text, number);
            self.reopened.0.line(&line.text, number);
            self.starts.line(line, number);
            if self.written.line(line) {
                self.past = number;
            }
            if has_phrase(&line.text, " 0%|") && has_phrase(&line.text, "[00:00<?") {
                keep_first(&mut self.begun, number);
            }
            let may_open = line.text.starts_with(|c: char| c.is_ascii_digit() || c == 'U' || c == 'I');
            if may_open && OPENINGS.iter().any(|words| has_phrase(&line.text, words)) {
                keep_first(&mut self.programs, number);
            }
            if is_next_run(&line.text) {
                keep_first(&mut self.next, number);
            }
            if is_passing_over(&line.text) {
                keep_first(&mut self.passed_over, number);
            }
            // Tests may print tracebacks.
            if is_tests_end(&line.text) {
                keep_first(&mut self.successes, number);
            }
        }
    }

    /// A row whose like was written before with a smaller first number, whatever it counts: `ep 014 nll 3.0093`.
    fn row(&mut self, line: &Line, number: u64) -> Option<Progress> {
        let text = line.text.as_str();
        let is_row = text.len() < LONGEST_OPENING && has_fraction(text) && !is_error(text) && !has_phrase(text, "NCCL");
        let mut words = text.split_whitespace().filter(|_| is_row);
        let step = words.find_map(|word| word.rsplit('=').next()?.trim_end_matches([',', ':']).parse::<u64>().ok())?;
        let letters = letters_of(text);
        let known = self.rows.iter_mut().find(|(row, _)| *row == letters);
        if let Some((_, before)) = known {
            let rises = step > std::mem::replace(before, step);
            return rises.then_some(Progress { line: number, rank: line.rank, step, of: None, is_epoch: false });
        }
        if self.rows.len() >= MOST_ROWS {
            self.rows.remove(0);
        }
        self.rows.push((letters, step));
        None
    }

    /// A line in which a logger, which writes the time, tells of a failure.
    pub(crate) fn logged(&mut self, number: u64) {
        keep_first(&mut self.logged, number);
    }

    /// A line with words that trainers and launchers use when all is well or starts anew.
    pub(crate) fn words(&mut self, line: &Line, number: u64) {
        if is_restart(line) {
            keep_first(&mut self.restarts, number);
        } else if is_success(line) {
            keep_first(&mut self.successes, number);
        }
    }

    /// The last lines before an exception that did not end the program: it may have ended well before.
    pub(crate) fn remember(&mut self, before: &str, last: u64) {
        const READ: usize = 200;
        for (text, number) in before.lines().rev().zip((1..=last).rev()).take(READ) {
            let line = Line::new(text.as_bytes());
            if is_success(&line) {
                keep_first(&mut self.successes, number);
            }
        }
    }

    /// A step, wherever it was seen.
    pub(crate) fn step(&mut self, step: Progress) {
        if self.steps.contains(&step) {
            return;
        }
        // Of more, the last ones count.
        if self.steps.len() >= MOST_STEPS {
            self.steps.remove(0);
        }
        self.steps.push(step);
    }

    /// With the steps of the log's last lines, `lines` being their number.
    pub(crate) fn finish(mut self, tail: &str, lines: u64) -> Seen {
        steps_before(tail, lines).into_iter().for_each(|step| self.step(step));
        if self.opening.as_ref().is_some_and(|opening| !opening.is_empty()) {
            let numbered = tail.lines().rev().zip((1..=lines).rev());
            numbered.for_each(|(text, number)| self.begins_again(&Line::new(text.as_bytes()), number));
        }
        self.steps.sort_by_key(|step| step.line);
        let Self {
            steps,
            restarts,
            successes,
            new_runs,
            passed_over,
            begun,
            programs,
            logged,
            alive,
            next,
            again,
            reopened,
            starts,
            past,
            ..
        } = self;
        let (again, reopened, starts) = (again.lines, reopened.0.lines, starts.finish());
        Seen {
            steps,
            restarts,
            successes,
            new_runs,
            passed_over,
            begun,
            programs,
            logged,
            alive,
            next,
            again,
            reopened,
            starts,
            past,
        }
    }
}

/// Whether a logger wrote the line: with the time and a level.
pub(crate) fn is_logged(line: &Line) -> bool {
    const LEVELS: &[&str] = &["ERROR", "INFO", "WARN", "CRITICAL", "EXCEPTION"];
    let has_level = LEVELS.iter().any(|level| has_phrase(&line.text, level));
    has_level && (line.stamp.is_some() || Stamp::of_line(&line.text).is_some())
}

/// Whether a logger, which writes the time, tells of something else than errors and the end.
pub(crate) fn is_alive(line: &Line) -> bool {
    let text = line.text.as_str();
    let has_time = line.stamp.is_some() || Stamp::of_line(text).is_some();
    let launches =
        ["torch.distributed", "launch.py", "NCCL", "srun", "slurmstepd", "as FAILED", "return code", "exit code"];
    has_time
        && !has_phrase(text, "WARN")
        && !is_error(text)
        && !is_closing(text)
        && !launches.iter().any(|words| has_phrase(text, words))
}

/// Whether a number with a fraction stands in the text.
pub(crate) fn has_fraction(text: &str) -> bool {
    text.as_bytes().windows(3).any(|it| it[0].is_ascii_digit() && it[1] == b'.' && it[2].is_ascii_digit())
}

/// Whether who started a command only warns that it failed.
pub(crate) fn is_warned_of(text: &str) -> bool {
    text.starts_with("WARNING:") && has_phrase(text, " failed: Command '")
}

/// Whether a line begins by saying that the program goes on without what it has just failed to do.
fn is_passing_over(text: &str) -> bool {
    const WORDS: &[&str] = &["kipping ", "kipped ", "ontinuing", "alling back", "etrying", "rying again"];
    const ANYWHERE: &[&str] = &["entering retry", "etrying in", "will retry", "ill be retried", ", trying the "];
    let start = text.get(..24).unwrap_or(text);
    is_warned_of(text)
        || WORDS.iter().any(|words| has_phrase(start, words))
        || ANYWHERE.iter().any(|words| has_phrase(text, words))
}

/// Whether a line begins or ends another run of several: of wandb's and Hydra's sweeps, of Ray Tune's trials, of scripts
/// that count them (`== run 2 of 3: lr 0.01`).
fn is_next_run(text: &str) -> bool {
    const RUNS: &[&str] = &["run", "trial", "experiment", "config", "configuration", "seed", "job", "sweep"];
    let agent = has_phrase(text, "Agent Starting Run: ");
    let trial = text.starts_with("Trial ") && has_phrase(text, " completed after ") && has_phrase(text, " iterations");
    let hydra = text.strip_prefix("[HYDRA]").or_else(|| text.split_once("][HYDRA]").map(|(_, rest)| rest));
    let hydra = hydra.is_some_and(|rest| rest.trim_start().starts_with('#') && rest.contains(" : "));
    let mut words = text.trim_start_matches(['=', '-', '*', '#', '>', '[', ' ']).split([' ', '/']);
    let is_run = words.next().is_some_and(|word| RUNS.iter().any(|run| word.eq_ignore_ascii_case(run)));
    let number = |word: Option<&str>| word?.trim_end_matches([':', ',', ']', ')', '=', '-']).parse::<u32>().ok();
    let first = number(words.next()).filter(|_| is_run);
    let counted = first.is_some_and(|first| {
        let second = words.next();
        number(if second == Some("of") { words.next() } else { second }).is_some_and(|last| 1 < first && first <= last)
    });
    agent || trial || hydra || (counted && !is_error(text) && !has_phrase(text, "fail"))
}

/// The letters of a log's first line that says anything, where it states a time and is no error.
fn opening(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line = Line::new(first.as_bytes());
    let has_time = line.stamp.is_some() || Stamp::of_line(&line.text).is_some();
    let found = letters_of(&line.text);
    let is_usable = has_time && found.len() >= SHORTEST_OPENING && !is_error(&line.text);
    if is_usable { found } else { String::new() }
}

pub(crate) fn letters_of(text: &str) -> String {
    text.chars().take(LONGEST_OPENING).filter(|letter| letter.is_alphabetic()).collect()
}

fn keep_first(lines: &mut Vec<u64>, number: u64) {
    if lines.len() >= MOST_WORDS {
        lines.pop();
    }
    if lines.last() != Some(&number) {
        lines.push(number);
    }
}
