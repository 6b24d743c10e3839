//! [`Scanner`]: bytes of a log in, findings out, in memory that does not grow with the log.
//!
//! Most lines hold none of the needles and are passed over at the speed of the search; only the others are cleaned and
//! read. A message that may go on over several lines waits for them.

use memchr::{memchr, memrchr};

use super::block::Block;
use super::cause::FailureCause;
use super::line::{Line, without_codes};
use super::needles::Needles;
use super::signature::{Reading, SIGNATURES};

/// A longer line is read in pieces of this many bytes.
const LONGEST_LINE: usize = 64 << 10;
/// What a piece repeats of the one before, so that no message is lost between them.
const OVERLAP: usize = 512;
/// Messages that wait for further lines at one time; there are as many as ranks write at once.
const MOST_WAITING: usize = 64;
/// Lines after which a message is over, whoever wrote them.
const LONGEST_WAIT: usize = 256;
/// Findings of one signature and rank that are kept; of more, only the number.
const MOST_ALIKE: usize = 4;
/// Findings kept of all.
const MOST_FINDINGS: usize = 1024;
/// Bytes of a message that are kept as evidence.
const LONGEST_EVIDENCE: usize = 600;

/// A place in a log where a signature was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it says.
    pub cause: FailureCause,
    /// Which signature, by name.
    pub signature: &'static str,
    /// Its line, from 1.
    pub line: u64,
    /// The rank that wrote it, where the line says so.
    pub rank: Option<u32>,
    /// The line, without terminal codes; not yet fit for a terminal, see [`super::printable`].
    pub text: String,
    /// How often it was said; the repetitions are later.
    pub count: u64,
    /// The line of the last repetition.
    pub last_line: u64,
}

/// What was found in one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// In the order of lines.
    pub findings: Vec<Finding>,
    /// How many lines the log has.
    pub lines: u64,
}

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
    findings: Vec<Finding>,
}

/// A message that may go on.
struct Waiting {
    signature: usize,
    line: u64,
    rank: Option<u32>,
    /// The first line, as evidence.
    first: String,
    text: String,
    /// What has been understood so far.
    best: Option<FailureCause>,
    /// Lines of its rank that may still belong to it.
    more: usize,
    /// Lines of anybody.
    patience: usize,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the start of a log.
    pub fn new() -> Self {
        let needles = Needles::all();
        Self { needles, pending: Vec::new(), lines: 0, waiting: Vec::new(), findings: Vec::new() }
    }

    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
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
        &self.findings
    }

    /// Ends the log.
    pub fn finish(mut self) -> Scan {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.long_line(&rest);
            self.lines += 1;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.keep(waiting);
        }
        self.findings.sort_by_key(|finding| finding.line);
        Scan { findings: self.findings, lines: self.lines }
    }

    /// Adds to the line without an end; reads the front of one that grows too long.
    fn extend(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() > LONGEST_LINE && !self.pending.ends_with(b"\n") {
            let piece: Vec<u8> = self.pending.drain(..LONGEST_LINE - OVERLAP).collect();
            let overlap = self.pending.get(..OVERLAP).unwrap_or_default();
            let piece = [piece.as_slice(), overlap].concat();
            self.line(&piece);
        }
    }

    /// Reads lines that are complete, each with its end.
    fn whole_lines(&mut self, block: &[u8]) {
        let mut block = Block::new(block, LONGEST_LINE);
        while !self.waiting.is_empty() || block.skip_to_candidate(self.needles, &mut self.lines) {
            let Some(line) = block.line() else { return };
            self.long_line(line);
            self.lines += 1;
        }
    }

    /// A line of any length, in the pieces in which [`Self::extend`] would have read it.
    fn long_line(&mut self, mut line: &[u8]) {
        while line.len() > LONGEST_LINE {
            self.line(line.get(..LONGEST_LINE).unwrap_or(line));
            line = line.get(LONGEST_LINE - OVERLAP..).unwrap_or_default();
        }
        self.line(line);
    }

    /// A line, in which a progress bar may have gone back to the start several times.
    fn line(&mut self, raw: &[u8]) {
        for part in raw.split(|byte| *byte == b'\r').filter(|part| !part.is_empty()) {
            let clean = without_codes(part);
            let candidates = self.needles.signatures(&clean);
            if candidates != 0 || !self.waiting.is_empty() {
                self.part(&clean, candidates);
            }
        }
    }

    /// Shows what a line says to the messages that wait, and to the signatures that are `candidates`.
    fn part(&mut self, clean: &[u8], mut candidates: u128) {
        let line = Line::new(clean);
        self.go_on(&line);
        if line.is_quote() {
            return;
        }
        while candidates != 0 {
            let at = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let Some(signature) = SIGNATURES.get(at) else { continue };
            if let Some(reading) = (signature.read)(&line.text) {
                self.found(at, signature.follow, &line, reading);
                return;
            }
        }
    }

    fn found(&mut self, signature: usize, follow: usize, line: &Line, reading: Reading) {
        let first: String = cut(&line.text, LONGEST_EVIDENCE).to_owned();
        let waiting = Waiting {
            signature,
            line: self.lines + 1,
            rank: line.rank,
            first,
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
            let same = line.rank.is_none() || waiting.rank.is_none() || line.rank == waiting.rank;
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
        let alike = |finding: &&mut Finding| finding.signature == signature && finding.rank == waiting.rank;
        let known =
            self.findings.iter().filter(|finding| finding.signature == signature && finding.rank == waiting.rank);
        let (count, last) = known.fold((0, 0), |(count, _), finding| (count + 1, finding.last_line));
        // The pieces of a long line overlap: what stands in both is one finding.
        if count > 0 && last == waiting.line {
            return;
        }
        if count >= MOST_ALIKE || self.findings.len() >= MOST_FINDINGS {
            if let Some(finding) = self.findings.iter_mut().rev().find(alike) {
                finding.count += 1;
                finding.last_line = waiting.line;
            }
            return;
        }
        self.findings.push(Finding {
            cause,
            signature,
            line: waiting.line,
            rank: waiting.rank,
            text: waiting.first,
            count: 1,
            last_line: waiting.line,
        });
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

/// At most `length` bytes of the text, whole characters.
fn cut(text: &str, length: usize) -> &str {
    if text.len() <= length {
        return text;
    }
    let end = (0..=length).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}
