//! [`Scanner`]: bytes of a log in, findings out, in memory that does not grow with the log.
//!
//! Most lines hold none of the needles and are passed over at the speed of the search; only the others are cleaned and
//! read. A message that may go on over several lines waits for them, as a traceback does. After a finding the next lines
//! are read for signs that the job lives.

use memchr::{memchr, memrchr};

use super::block::Block;
use super::cause::FailureCause;
use super::class::Strength;
use super::finding::{Finding, Kept, Scan, Tone};
use super::history::{Around, History, around, steps};
use super::line::{Line, without_codes};
use super::mark::{Kind, MARKS};
use super::needles::Needles;
use super::progress::{Progress, is_restart, is_success};
use super::quote;
use super::setting::Setting;
use super::signature::{Reading, SIGNATURES};
use super::traceback::{Ended, Tracebacks, cut};

/// A longer line is read in pieces of this many bytes.
const LONGEST_LINE: usize = 64 << 10;
/// What a piece repeats of the one before, so that no message is lost between them.
const OVERLAP: usize = 512;
/// Messages that wait for further lines at one time; there are as many as ranks write at once.
const MOST_WAITING: usize = 64;
/// Lines after which a message is over, whoever wrote them.
const LONGEST_WAIT: usize = 256;
/// Bytes of a message that are kept as evidence.
const LONGEST_EVIDENCE: usize = 600;
/// Lines after a finding that are read for signs of life.
const WATCHED: usize = 400;
/// Bytes of a log's beginning that tell on what it ran.
const HEAD: usize = 8 << 10;
/// Steps that are kept.
const MOST_STEPS: usize = 512;

/// Reads a log piece by piece. What it finds does not depend on how the log is cut.
///
/// ```
/// use tonnage_core::failure::Scanner;
///
/// let mut scanner = Scanner::new();
/// scanner.feed(b"step 10 loss 2.31\nslurmstepd: error: Detected 1 oom_kill ");
/// scanner.feed(b"event in StepId=7.0. Some of the step tasks have been OOM Killed.\n");
/// let scan = scanner.finish();
/// assert_eq!(scan.findings[0].line, 2);
/// assert_eq!(scan.findings[0].cause.class().name(), "host_memory");
/// ```
pub struct Scanner {
    needles: &'static Needles,
    /// The bytes of a line whose end has not come.
    pending: Vec<u8>,
    /// Lines that have ended.
    lines: u64,
    waiting: Vec<Waiting>,
    tracebacks: Tracebacks,
    /// The rank and the first line of the last chain of tracebacks, and whether the next one belongs to it.
    chain: (Option<u32>, u64, bool),
    /// Lines that are still watched for signs of life.
    watched: usize,
    fences: Fences,
    kept: Kept,
    history: History,
    head: Vec<u8>,
    setting: Setting,
    steps: Vec<Progress>,
    restarts: Vec<u64>,
    successes: Vec<u64>,
}

/// A message that may go on.
struct Waiting {
    signature: usize,
    finding: Draft,
    text: String,
    /// What has been understood so far.
    best: Option<FailureCause>,
    /// Lines of its rank that may still belong to it.
    more: usize,
    /// Lines of anybody.
    patience: usize,
}

/// A finding whose cause is not known yet.
struct Draft {
    line: u64,
    rank: Option<u32>,
    /// The first line, as evidence.
    text: String,
    tone: Tone,
    fence: usize,
    around: Around,
}

/// Blocks of Markdown: how many have begun, and whether one is open.
#[derive(Default)]
struct Fences {
    begun: usize,
    first_line: u64,
    is_open: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the start of a log.
    pub fn new() -> Self {
        Self {
            needles: Needles::all(),
            pending: Vec::new(),
            lines: 0,
            waiting: Vec::new(),
            tracebacks: Tracebacks::default(),
            chain: (None, 0, false),
            watched: 0,
            fences: Fences::default(),
            kept: Kept::default(),
            history: History::default(),
            head: Vec::new(),
            setting: Setting::default(),
            steps: Vec::new(),
            restarts: Vec::new(),
            successes: Vec::new(),
        }
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.head.len() < HEAD {
            self.head.extend_from_slice(bytes.get(..bytes.len().min(HEAD - self.head.len())).unwrap_or_default());
        }
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let end = memchr(b'\n', rest).map(|end| end + 1);
            let (head, tail) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, &[]));
            self.extend(head);
            if end.is_none() {
                return;
            }
            let line = std::mem::take(&mut self.pending);
            self.whole_lines(&line);
            rest = tail;
        }
        let end = memrchr(b'\n', rest).map_or(0, |end| end + 1);
        let (whole, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        self.whole_lines(whole);
        self.extend(tail);
    }

    /// What was found so far, without messages that may still go on.
    pub fn findings(&self) -> &[Finding] {
        self.kept.findings()
    }

    /// Ends the log.
    pub fn finish(mut self) -> Scan {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.long_line(&rest, b"");
            self.lines += 1;
            self.history.extend(&rest);
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.keep(waiting);
        }
        for ended in self.tracebacks.finish() {
            self.raised(ended, b"");
        }
        let tail = self.history.text(b"");
        self.last_words(&tail);
        self.life_at_the_end(&tail);
        let head = std::mem::take(&mut self.head);
        self.setting.learn(&String::from_utf8_lossy(&head));
        self.setting.learn(&tail);
        let closed = if self.fences.is_open { self.fences.begun - 1 } else { self.fences.begun };
        let is_document = self.fences.first_line > 1 && is_document(&head);
        let findings = self.kept.finish(if is_document { closed } else { 0 });
        Scan {
            findings,
            lines: self.lines,
            steps: self.steps,
            restarts: self.restarts,
            successes: self.successes,
            setting: self.setting,
        }
    }

    /// Signs of life in the log's last lines.
    fn life_at_the_end(&mut self, tail: &str) {
        for step in steps(tail, self.lines) {
            self.step(step);
        }
        for (text, number) in tail.lines().rev().zip((1..=self.lines).rev()) {
            let text = text.get(..text.len().min(2000)).unwrap_or_default();
            let line = Line::new(text.as_bytes());
            if is_success(&line) {
                self.successes.push(number);
            }
            if is_restart(&line) {
                self.restarts.push(number);
            }
        }
        for lines in [&mut self.successes, &mut self.restarts] {
            lines.sort_unstable();
            lines.dedup();
        }
        self.steps.sort_by_key(|step| step.line);
        self.steps.dedup();
    }

    /// An exception that ends the log without a traceback, as excerpts have it.
    fn last_words(&mut self, tail: &str) {
        /// Lines that launchers write after it.
        const AFTER: usize = 40;
        let explains = |finding: &&Finding| finding.strength() > Strength::Echo;
        let known = self.kept.findings().iter().filter(explains).map(|finding| finding.last_line).max().unwrap_or(0);
        let numbered = tail.lines().rev().zip((1..=self.lines).rev()).take(AFTER);
        for (text, number) in numbered.take_while(|(_, number)| *number > known) {
            let line = Line::new(text.as_bytes());
            if line.indent > 1 || quote::by_itself(&line) {
                continue;
            }
            let Some((name, message)) =
                super::exception::stated(line.text.trim_start_matches('*'), true).filter(|_| line.text.contains(':'))
            else {
                continue;
            };
            let exception = super::exception::Exception::new(name, cut(message, 400), &Default::default());
            let ended = Ended {
                exception,
                line: number,
                head: number,
                rank: line.rank,
                text: line.text.clone(),
                place: None,
                phase: None,
                is_warned: false,
                files: Default::default(),
            };
            self.raised(ended, b"");
            return;
        }
    }

    /// Adds to the line without an end; reads the front of one that grows too long.
    fn extend(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() > LONGEST_LINE && !self.pending.ends_with(b"\n") {
            let piece: Vec<u8> = self.pending.drain(..LONGEST_LINE - OVERLAP).collect();
            let overlap = self.pending.get(..OVERLAP).unwrap_or_default();
            let piece = [piece.as_slice(), overlap].concat();
            self.line(&piece, b"");
        }
    }

    /// Whether every line must be read.
    fn is_attentive(&self) -> bool {
        !self.waiting.is_empty() || self.watched > 0 || self.tracebacks.is_open()
    }

    /// Reads lines that are complete, each with its end.
    fn whole_lines(&mut self, lines: &[u8]) {
        let mut block = Block::new(lines, LONGEST_LINE);
        while self.is_attentive() || block.skip_to_candidate(self.needles, &mut self.lines) {
            let before = block.passed();
            let Some(line) = block.line() else { break };
            self.long_line(line, before);
            self.lines += 1;
        }
        self.history.extend(lines);
    }

    /// A line of any length, in the pieces in which [`Self::extend`] would have read it.
    fn long_line(&mut self, mut line: &[u8], before: &[u8]) {
        while line.len() > LONGEST_LINE {
            self.line(line.get(..LONGEST_LINE).unwrap_or(line), before);
            line = line.get(LONGEST_LINE - OVERLAP..).unwrap_or_default();
        }
        self.line(line, before);
    }

    /// A line, in which a progress bar may have gone back to the start several times.
    fn line(&mut self, raw: &[u8], before: &[u8]) {
        for part in raw.split(|byte| *byte == b'\r').filter(|part| !part.is_empty()) {
            let clean = without_codes(part);
            let candidates = self.needles.signatures(&clean);
            if candidates != 0 || self.is_attentive() {
                self.part(&clean, candidates, before);
            }
        }
    }

    /// Shows what a line says to the messages that wait, and to the signatures that are `candidates`.
    fn part(&mut self, clean: &[u8], candidates: u128, before: &[u8]) {
        let line = Line::new(clean);
        self.go_on(&line);
        self.watch(&line);
        if quote::by_itself(&line) {
            return self.marks(&line, candidates);
        }
        self.signatures(&line, candidates, before);
        if self.tracebacks.is_open() || self.is_marked(candidates, Kind::Traceback) {
            let ended = self.tracebacks.read(&line, self.lines + 1);
            if let Some(ended) = ended {
                self.raised(ended, before);
            }
        }
        self.marks(&line, candidates);
    }

    fn signatures(&mut self, line: &Line, mut candidates: u128, before: &[u8]) {
        while candidates != 0 {
            let at = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let Some(signature) = SIGNATURES.get(at) else { return };
            if let Some(reading) = (signature.read)(&line.text) {
                return self.found(at, signature.follow, line, reading, before);
            }
        }
    }

    fn is_marked(&self, candidates: u128, kind: Kind) -> bool {
        let is = |(at, mark): (usize, &super::mark::Mark)| {
            mark.kind == kind && candidates >> (SIGNATURES.len() + at) & 1 == 1
        };
        MARKS.iter().enumerate().any(is)
    }

    /// Fences of Markdown.
    fn marks(&mut self, line: &Line, candidates: u128) {
        if self.is_marked(candidates, Kind::Fence) && line.text.starts_with("```") {
            self.fences.is_open = !self.fences.is_open;
            if self.fences.is_open {
                self.fences.begun += 1;
            }
            if self.fences.first_line == 0 {
                self.fences.first_line = self.lines + 1;
            }
        }
    }

    /// Signs of life after a finding, and what joins a traceback to the one before.
    fn watch(&mut self, line: &Line) {
        if self.watched == 0 {
            return;
        }
        self.watched -= 1;
        let number = self.lines + 1;
        let text = line.text.as_str();
        if let Some(step) = Progress::of_line(text, number, line.rank) {
            self.step(step);
        } else if is_restart(line) {
            self.restarts.push(number);
        } else if is_success(line) {
            self.successes.push(number);
        } else if text.starts_with("During handling of the above exception")
            || text.starts_with("The above exception was the direct cause")
        {
            self.chain.2 = true;
        }
    }

    fn step(&mut self, step: Progress) {
        if self.steps.len() < MOST_STEPS && !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    fn found(&mut self, signature: usize, follow: usize, line: &Line, reading: Reading, before: &[u8]) {
        let name = SIGNATURES.get(signature).map_or("", |signature| signature.name);
        let number = self.lines + 1;
        let (fresh, text) = (!self.kept.is_full(name, line.rank), cut(&line.text, LONGEST_EVIDENCE).to_owned());
        let mut draft = Draft {
            line: number,
            rank: line.rank,
            tone: Tone::of_line(&line.text),
            text,
            fence: if self.fences.is_open { self.fences.begun } else { 0 },
            around: Around::default(),
        };
        if fresh {
            let history = self.history.text(before);
            if quote::by_context(&history, line.indent, &line.text) {
                return;
            }
            draft.around = around(&history, number, &line.text);
            self.setting.learn(&history);
        }
        let waiting = Waiting {
            signature,
            finding: draft,
            text: line.text.clone(),
            best: reading.cause,
            more: follow,
            patience: LONGEST_WAIT,
        };
        if reading.complete || follow == 0 || self.waiting.len() >= MOST_WAITING {
            self.keep(waiting);
        } else {
            self.waiting.push(waiting);
        }
    }

    /// Gives the line to the messages of the same rank that wait for it.
    fn go_on(&mut self, line: &Line) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get_mut(at) {
            let same = line.rank.is_none() || waiting.finding.rank.is_none() || line.rank == waiting.finding.rank;
            waiting.more -= usize::from(same);
            waiting.patience -= 1;
            let complete = same && waiting.add(&line.text);
            if complete || waiting.more == 0 || waiting.patience == 0 {
                let done = self.waiting.remove(at);
                self.keep(done);
            } else {
                at += 1;
            }
        }
    }

    fn keep(&mut self, waiting: Waiting) {
        let Some(cause) = waiting.best else { return };
        let signature = SIGNATURES.get(waiting.signature).map_or("", |signature| signature.name);
        self.setting.learn(&waiting.text);
        self.keep_finding(waiting.finding.into_finding(cause, signature));
    }

    fn keep_finding(&mut self, finding: Finding) {
        let steps = finding.steps.clone();
        if self.kept.add(finding) {
            self.watched = WATCHED;
            steps.into_iter().for_each(|step| self.step(step));
        }
    }

    /// A traceback has ended: where a signature knew its last line, that gains its place; else it is a finding.
    fn raised(&mut self, ended: Ended, before: &[u8]) {
        let chained = std::mem::take(&mut self.chain.2) && self.chain.0 == ended.rank;
        let chain = if chained { self.chain.1 } else { ended.head };
        self.chain = (ended.rank, chain, false);
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.finding.line == ended.line) {
            waiting.finding.tone = Tone::Raised { place: ended.place, phase: ended.phase, chain };
            return;
        }
        if self.kept.at_line(&ended, chain) {
            return;
        }
        let mut draft = Draft {
            line: ended.line,
            rank: ended.rank,
            text: cut(&ended.text, LONGEST_EVIDENCE).to_owned(),
            tone: Tone::Raised { place: ended.place, phase: ended.phase, chain },
            fence: if self.fences.is_open { self.fences.begun } else { 0 },
            around: Around::default(),
        };
        let mut cause = ended.exception;
        if !self.kept.is_full(RAISED, ended.rank) {
            let history = self.history.text(before);
            if quote::by_context(&history, 0, &ended.text) {
                return;
            }
            draft.around = around(&history, self.lines + 1, "");
            self.setting.learn(&history);
            if ended.is_warned || is_aside(&history, self.lines.saturating_sub(ended.head)) {
                cause.raiser = super::exception::Raiser::Aside;
            }
        }
        self.watched = WATCHED;
        self.keep_finding(draft.into_finding(FailureCause::Raised(cause), RAISED));
    }
}

/// The name under which exceptions are found that no signature knows.
pub(super) const RAISED: &str = "traceback";

/// Whether the lines before a traceback's head, `back` lines ago, say that the program goes on after it.
fn is_aside(history: &str, back: u64) -> bool {
    const ASIDES: &[&str] = &[
        "Exception ignored in",
        "Exception in thread",
        "Error in atexit",
        "exception was never retrieved",
        "Exception in callback",
        "Exception in ASGI application",
        "--- Logging error ---",
        "Error in sys.excepthook",
        "Exception in worker process, retrying",
    ];
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    history.lines().rev().skip(back).take(3).any(|text| ASIDES.iter().any(|aside| text.contains(aside)))
}

/// Whether a text is a document rather than a log: it begins with a heading of Markdown.
fn is_document(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.lines().any(|line| {
        let rest = line.trim_start_matches('#');
        (1..=4).contains(&(line.len() - rest.len())) && rest.starts_with(' ') && rest.trim().len() > 2
    })
}

impl Draft {
    fn into_finding(self, cause: FailureCause, signature: &'static str) -> Finding {
        Finding {
            cause,
            signature,
            line: self.line,
            rank: self.rank,
            text: self.text,
            count: 1,
            last_line: self.line,
            tone: self.tone,
            stamp: self.around.stamp,
            steps: self.around.steps,
            phase: self.around.phase,
            context: self.around.context,
            fence: self.fence,
        }
    }
}

impl Waiting {
    /// Reads the message with one more line; true when nothing more can come.
    fn add(&mut self, line: &str) -> bool {
        self.text.push('\n');
        self.text.push_str(cut(line, LONGEST_EVIDENCE));
        let Some(signature) = SIGNATURES.get(self.signature) else { return true };
        let Some(reading) = (signature.read)(&self.text) else { return false };
        self.best = reading.cause.or(self.best.take());
        reading.complete
    }
}
