//! [`Finding`]: a place in a log where a failure is stated, with how it is stated and what stood around it.

use crate::cause::FailureCause;
use crate::exception::{Place, Raiser};
use crate::phase::Phase;
use crate::progress::Progress;
use crate::setting::Setting;
use crate::stamp::Stamp;
use crate::starts::Starts;
use crate::text::has_phrase;
use crate::traceback::Ended;
use tonnage_core::failure::{Class, Strength};

/// Findings of one signature and rank that are kept; of more, only the number and the last.
const MOST_ALIKE: usize = 4;
/// Findings kept of all.
const MOST_FINDINGS: usize = 1024;

/// The signature of C++ exceptions.
const THROWN: &str = "native_exception";

/// How a failure is stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A traceback ends with it.
    Raised {
        /// The innermost line of the program's own code.
        place: Option<Place>,
        /// What the frames say it was doing.
        phase: Option<Phase>,
        /// The first line of its chain of tracebacks.
        chain: u64,
    },
    /// A line says it.
    Said,
    /// A line says it as a warning, or as something that was caught.
    Warned,
}

/// A place in a log where a failure was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it says.
    pub cause: FailureCause,
    /// Which signature, by name.
    pub signature: &'static str,
    /// Its line, from 1; 0 where it stands in no log.
    pub line: u64,
    /// The rank that wrote it, where the line says so.
    pub rank: Option<u32>,
    /// The line, without terminal codes; not yet fit for a terminal, see [`tonnage_core::printable`].
    pub text: String,
    /// How often it was said; the repetitions are later.
    pub count: u64,
    /// The line of the last repetition.
    pub last_line: u64,
    /// How it is stated.
    pub tone: Tone,
    /// When, as far as lines up to it say.
    pub stamp: Option<Stamp>,
    /// The last steps before it.
    pub steps: Vec<Progress>,
    /// What lines before it said the job was doing.
    pub phase: Option<Phase>,
    /// The lines just before it; not yet fit for a terminal.
    pub context: Vec<String>,
    /// The innermost line of the program in the stack that Python dumped as it crashed.
    pub(crate) crashed_at: Option<Place>,
    /// The number of the block of Markdown in which it stands; 0 in none.
    pub(crate) fence: usize,
}

/// What was found in one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// In the order of lines.
    pub findings: Vec<Finding>,
    /// How many lines the log has.
    pub lines: u64,
    /// Steps around findings and at the end.
    pub steps: Vec<Progress>,
    /// Lines that say that the job was started again.
    pub restarts: Vec<u64>,
    /// Lines that are the log's first one again, with their times.
    pub new_runs: Vec<(u64, Stamp)>,
    /// Lines that say that it ended well.
    pub successes: Vec<u64>,
    /// Lines that begin by saying that the program goes on without what it has just failed to do.
    pub passed_over: Vec<u64>,
    /// Lines in which a progress bar begins.
    pub begun: Vec<u64>,
    /// Lines that a program says when it begins.
    pub programs: Vec<u64>,
    /// Lines in which a logger, which writes the time, tells of a failure.
    pub logged: Vec<u64>,
    /// Lines in which one tells of something else after that.
    pub alive: Vec<u64>,
    /// Lines in which another run of a sweep begins or ends.
    pub next: Vec<u64>,
    /// Lines in which the log's first lines come again.
    pub again: Vec<u64>,
    /// Lines in which the very first ones come again, of a log of many runs.
    pub reopened: Vec<u64>,
    /// What only another command writes.
    pub starts: Starts,
    /// The last line up to which, after a finding, more was written than a program holds back.
    pub past: u64,
    /// The first of its last lines, which have more bytes than a program holds back and writes when it ends.
    pub late: u64,
    /// The last of its closing lines that calls itself an error.
    pub last_error: Option<LastError>,
    /// The closing line that says that all ended well, behind which none calls itself an error.
    pub ended_well: Option<u64>,
    /// Whether it ends within a stack that native code dumped.
    pub ends_in_dump: bool,
    /// The last line that is not what stands behind any program's end, such as wandb's farewell.
    pub last_said: u64,
    /// The last time that its closing lines state.
    pub last_stamp: Option<Stamp>,
    /// On what and with what it ran.
    pub setting: Setting,
}

/// A line that calls itself an error, which no signature knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// The line, from 1.
    pub line: u64,
    /// What it says; not yet fit for a terminal.
    pub text: String,
}

impl Finding {
    /// What an exit status says by itself, as if a log said it; 0 says nothing.
    pub fn of_exit_status(status: i64) -> Option<Self> {
        Some(Self {
            cause: FailureCause::of_exit_status(status)?,
            signature: "exit_status",
            line: 0,
            rank: None,
            text: format!("exit status {status}"),
            count: 1,
            last_line: 0,
            tone: Tone::Said,
            stamp: None,
            steps: Vec::new(),
            phase: None,
            context: Vec::new(),
            crashed_at: None,
            fence: 0,
        })
    }

    pub fn class(&self) -> Class {
        self.cause.class()
    }

    /// How much it explains, stated as it is.
    pub fn strength(&self) -> Strength {
        let strength = self.cause.strength();
        // Who warns of an interrupt was interrupted.
        let is_ended = self.cause.class() == Class::Interrupted;
        match self.tone {
            Tone::Warned if has_phrase(&self.text, "Warning: ") && !is_ended => Strength::Warning,
            Tone::Warned => strength.min(Strength::Ending),
            _ => strength,
        }
    }

    /// The innermost line of the program, where a traceback or a dump of the stack says so.
    pub fn place(&self) -> Option<&Place> {
        match &self.tone {
            Tone::Raised { place: Some(place), .. } => Some(place),
            _ => self.crashed_at.as_ref(),
        }
    }

    /// The first line of its chain of tracebacks.
    pub(crate) fn chain(&self) -> Option<u64> {
        match self.tone {
            Tone::Raised { chain, .. } => Some(chain),
            _ => None,
        }
    }

    /// What the program was doing: what the frames say, else what lines before said, else steps if there were any.
    pub fn phase(&self) -> Option<Phase> {
        let frames = match &self.tone {
            Tone::Raised { phase, .. } => *phase,
            _ => None,
        };
        frames.or(self.phase).or((!self.steps.is_empty()).then_some(Phase::Step))
    }

    /// The last step before it; epochs are none.
    pub fn step(&self) -> Option<Progress> {
        self.steps.iter().rev().find(|step| !step.is_epoch).copied()
    }
}

impl Tone {
    /// As the line's words tell: Python's warnings, loggers' levels.
    pub(crate) fn of_line(text: &str) -> Self {
        let head = text.get(..text.len().min(200)).unwrap_or_else(|| crate::traceback::cut_text(text, 200));
        let python = has_phrase(head, "UserWarning: ")
            || has_phrase(head, "FutureWarning: ")
            || has_phrase(head, "RuntimeWarning: ");
        let level = has_phrase(head, "WARNING")
            || has_phrase(head, "[WARN")
            || head.starts_with("Warning: ")
            || has_phrase(head, "Warning: caught")
            || has_phrase(head, " WARN ");
        let glog = has_phrase(head, "[W")
            && head.get(..40).is_some_and(|head| has_phrase(head, "[W") && has_phrase(head, ":"));
        let glog = glog || is_glog_warning(head);
        let caught = [
            "caught ",
            "Caught ",
            "skipping",
            "Skipping",
            "skipped",
            "Skipped",
            "retrying",
            "Retrying",
            "ignoring",
            "ignored",
            "continuing",
            "recovered",
        ]
        .iter()
        .any(|word| has_phrase(text, word))
            && !has_phrase(text, " in DataLoader worker")
            && !has_phrase(text, "Watchdog caught");
        // These warn of what they die of.
        let means_it = [
            "NCCL WARN",
            "error: argument ",
            "tensorflow/",
            "_bfc) ran out",
            "tsl/",
            "Killed",
            "ran out of memory with exception",
        ]
        .iter()
        .any(|word| has_phrase(text, word));
        if (python || level || glog || caught) && !means_it { Self::Warned } else { Self::Said }
    }
}

/// `W1024 01:17:10.936000 140404 torch/a.py:1009] text`, behind another time or at the beginning.
fn is_glog_warning(head: &str) -> bool {
    let digits = |at: usize| {
        let day = head.as_bytes().get(at + 1..at + 6).unwrap_or_default();
        day.len() == 5 && day.ends_with(b" ") && day.iter().take(4).all(u8::is_ascii_digit)
    };
    let opens = |at: usize| head.get(..at).is_some_and(|before| before.is_empty() || before.ends_with(' '));
    memchr::memchr_iter(b'W', head.as_bytes()).take_while(|at| *at < 40).any(|at| opens(at) && digits(at))
}

/// Findings, as many as are kept.
#[derive(Default)]
pub(crate) struct Kept {
    findings: Vec<Finding>,
}

impl Kept {
    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether another one of the signature and rank is only counted.
    pub(crate) fn is_full(&self, signature: &str, rank: Option<u32>) -> bool {
        self.findings.len() >= MOST_FINDINGS || self.alike(signature, rank).count() >= MOST_ALIKE
    }

    /// Whether the last exception of the signature and the traceback's rank was the same, and one that a program goes on
    /// after.
    pub(crate) fn is_aside(&self, signature: &str, ended: &Ended) -> bool {
        let last = self.alike(signature, ended.rank).last();
        last.is_some_and(|last| match &last.cause {
            FailureCause::Raised(it) => it.raiser == Raiser::Aside && it.name == ended.exception.name,
            _ => false,
        })
    }

    fn alike(&self, signature: &str, rank: Option<u32>) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.signature == signature && finding.rank == rank)
    }

    /// Keeps it, or counts it; whether it was new.
    pub(crate) fn add(&mut self, finding: Finding) -> bool {
        let (signature, rank, line) = (finding.signature, finding.rank, finding.line);
        // The pieces of a long line overlap: what stands in both is one finding.
        if self.alike(signature, rank).last().is_some_and(|last| last.last_line == line) {
            return false;
        }
        if !self.is_full(signature, rank) {
            self.findings.push(finding);
            return true;
        }
        let same = |other: &&mut Finding| other.signature == signature && other.rank == rank;
        let Some(last) = self.findings.iter_mut().rev().find(same) else { return false };
        if last.last_line == line {
            return false;
        }
        // The last one is what the log ends with: it takes the place of the one before.
        let count = last.count + 1;
        *last = Finding { count, last_line: line, ..finding };
        false
    }

    /// Gives what a signature found at a traceback's last lines its tone and place; whether there was one.
    pub(crate) fn at_line(&mut self, ended: &Ended, tone: &Tone) -> bool {
        let lines = ended.line..=ended.last_line;
        let Some(found) = self.findings.iter_mut().rev().find(|finding| lines.contains(&finding.last_line)) else {
            return false;
        };
        found.rank = found.rank.or(ended.rank);
        // A semaphore that cannot be made says `No space left` too, and means `/dev/shm`.
        if ended.files.shared_memory && found.class() == Class::DiskFull {
            found.cause = FailureCause::SharedMemory { pid: None };
        }
        if ended.exception.raiser != Raiser::Aside {
            found.tone = tone.clone();
        }
        true
    }

    /// Gives the last of many alike, of which only the number was kept, its time: the last one up to it.
    pub(crate) fn date(&mut self, tail: &str, lines: u64) {
        for finding in self.findings.iter_mut().filter(|finding| finding.stamp.is_none() && finding.count > 1) {
            let behind = usize::try_from(lines.saturating_sub(finding.last_line)).unwrap_or(usize::MAX);
            finding.stamp = tail.lines().rev().skip(behind).find_map(Stamp::of_line);
        }
    }

    /// All of them, to be told more of.
    pub(crate) fn findings_mut(&mut self) -> &mut [Finding] {
        &mut self.findings
    }

    /// Of a text about failures only what tracebacks state was raised.
    pub(crate) fn drop_said(&mut self) {
        self.findings.retain(|finding| matches!(finding.tone, Tone::Raised { .. }));
    }

    /// Of a text about failures nothing that stands in such lines was a log's.
    pub(crate) fn drop_lines(&mut self, lines: &[u64]) {
        self.findings.retain(|finding| !lines.contains(&finding.line));
    }

    /// Of people who talk nothing is a log's.
    pub(crate) fn drop_all(&mut self) {
        self.findings.clear();
    }

    /// In the order of lines, without those of the first `closed` blocks of Markdown.
    pub(crate) fn finish(mut self, closed: usize) -> Vec<Finding> {
        self.findings.retain(|finding| finding.fence == 0 || finding.fence > closed);
        // What a signature knows of a C++ exception's words says more than that it was thrown.
        let known: Vec<u64> = self.findings.iter().filter(|it| it.signature != THROWN).map(|it| it.line).collect();
        let is_known = |line: u64| known.iter().any(|other| (line..=line + 3).contains(other));
        let is_told = |it: &Finding| it.signature == THROWN && it.class() == Class::Raised;
        self.findings.retain(|finding| !is_told(finding) || !is_known(finding.line));
        self.findings.sort_by_key(|finding| finding.line);
        self.findings
    }
}
