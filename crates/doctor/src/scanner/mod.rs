//! [`Scanner`]: bytes of a log in, findings out, in memory that does not grow with the log.
//!
//! Most lines hold none of the needles and are passed over at the speed of the search; only the others are cleaned and
//! read. A message that may go on over several lines waits for them, as a traceback does. After a finding the next lines
//! are read for signs that the job lives.

mod aside;
mod closing;
mod diverged;
mod dumped;
mod headed;
mod keeping;
mod onward;
mod prose;
mod raised;
mod records;
mod reports;
mod tools;
mod workflows;

use memchr::{memchr, memrchr};

use self::closing::CLOSING;
use crate::again::late_line;
use crate::block::Block;
use crate::code;
use crate::fences::{Fences, is_only_chat};
use crate::finding::{Finding, Kept, LastError, Scan, Tone};
use crate::history::{Around, History, lines_around};
use crate::life::{Life, is_logged};
use crate::line::{Line, behind_bar, cut_at, glued_starts, without_codes};
use crate::mark::{CHAINS, Kind, MARKS};
use crate::needles::Needles;
use crate::quote::{self, Wrapped};
use crate::setting::Setting;
use crate::signature::{Reading, SIGNATURES};
use crate::stamp::Stamp;
use crate::traceback::{CutOff, Tracebacks, cut_text};
use crate::utf16::Utf16;
use crate::waiting::{Draft, LONGEST_EVIDENCE, Waiting};

/// Marks of lines that may say something beside signatures.
const MARKED: [Kind; 3] = [Kind::Traceback, Kind::Chain, Kind::Life];
/// A longer line is read in pieces of this many bytes.
const LONGEST_LINE: usize = 64 << 10;
/// What a piece repeats of the one before, so that no message is lost between them.
const OVERLAP: usize = 512;
/// Messages that wait for further lines at one time; there are as many as ranks write at once.
const MOST_WAITING: usize = 64;
/// Bytes of a log's beginning that tell on what it ran.
const HEAD: usize = 8 << 10;

/// Reads a log piece by piece. What it finds does not depend on how the log is cut.
///
/// ```
/// use tonnage_doctor::Scanner;
///
/// let mut scanner = Scanner::new();
/// scanner.feed(b"step 10 loss 2.31\nslurmstepd: error: Detected 1 oom_kill ");
/// scanner.feed(b"event in StepId=7.0. Some of the step tasks have been OOM Killed.\n");
/// let scan = scanner.finish();
/// assert_eq!(scan.findings[0].line, 2);
/// assert_eq!(scan.findings[0].cause.class().name(), "host_memory");
/// ```
#[derive(Default)]
pub struct Scanner {
    needles: &'static Needles,
    utf16: Utf16,
    /// The bytes of a line whose end has not come.
    pending: Vec<u8>,
    /// Lines that have ended.
    lines: u64,
    waiting: Vec<Waiting>,
    tracebacks: Tracebacks,
    /// The rank and the first line of the last chain of tracebacks, and whether the next one belongs to it.
    chain: (Option<u32>, u64, bool),
    /// The last line of the last exception that Python itself ignored.
    ignored: u64,
    life: Life,
    fences: Fences,
    kept: Kept,
    history: History,
    head: Vec<u8>,
    /// What is put around the whole log, once a line has come that says anything.
    around: Option<Wrapped>,
    last_error: Option<LastError>,
    ended_well: Option<u64>,
    ends_in_dump: bool,
    /// The last line that is of a program and not behind any program's end.
    last_said: u64,
    setting: Setting,
}

impl Scanner {
    /// A scanner at the start of a log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next bytes, in UTF-8 or, by the mark they begin with, in UTF-16.
    pub fn feed(&mut self, bytes: &[u8]) {
        let bytes = self.utf16.read(bytes);
        self.feed_utf8(&bytes);
    }

    fn feed_utf8(&mut self, bytes: &[u8]) {
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
        if let Some(only) = self.utf16.finish() {
            self.feed_utf8(&[only]);
        }
        self.take_pending();
        let cut_off = self.tracebacks.cut_off(self.lines);
        for ended in self.tracebacks.finish() {
            // A head that follows from an exception which is told in full says less than that.
            let is_told = self.chain.2 && ended.exception.message.is_empty();
            if !is_told {
                self.raised(ended, b"");
            }
        }
        let tail = self.history.text(b"");
        self.judge_tail(&tail, cut_off.as_ref());
        self.kept.date(&tail, self.lines);
        let seen = self.life.finish(&tail, self.lines);
        self.setting.learn(&String::from_utf8_lossy(&self.head));
        self.setting.learn(&tail);
        Scan {
            findings: self.kept.finish(self.fences.quoted(&self.head)),
            lines: self.lines,
            steps: seen.steps,
            restarts: seen.restarts,
            successes: seen.successes,
            new_runs: seen.new_runs,
            passed_over: seen.passed_over,
            begun: seen.begun,
            programs: seen.programs,
            logged: seen.logged,
            alive: seen.alive,
            next: seen.next,
            again: seen.again,
            reopened: seen.reopened,
            starts: seen.starts.of_head(&self.head),
            past: seen.past,
            late: late_line(&tail, self.lines),
            last_error: self.last_error,
            ended_well: self.ended_well,
            ends_in_dump: self.ends_in_dump,
            last_said: self.last_said,
            last_stamp: tail.lines().rev().take(CLOSING).find_map(Stamp::of_line),
            setting: self.setting,
        }
    }

    /// Takes what has no end of line yet, and lines that waited for what follows them.
    fn take_pending(&mut self) {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.long_line(&rest, b"", None);
            self.lines += 1;
            self.history.extend(&rest);
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.keep(waiting);
        }
    }

    /// Finds what only a log's last lines tell, and drops what a document or a chat talks of.
    fn judge_tail(&mut self, tail: &str, cut_off: Option<&CutOff>) {
        let is_chat = is_only_chat(&self.head);
        if !is_chat {
            self.last_words(tail);
            self.cut_off(cut_off, tail);
            self.diverged(tail);
            self.place_crashes(tail);
        }
        if prose::is_document(tail, self.lines) {
            self.kept.drop_said();
        }
        if let Some(lines) = prose::talked_of(tail, self.lines) {
            self.kept.drop_lines(&lines);
        }
        if is_chat {
            self.kept.drop_all();
        }
    }

    /// Adds to the line without an end; reads the front of one that grows too long.
    fn extend(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() > LONGEST_LINE && !self.pending.ends_with(b"\n") {
            let piece: Vec<u8> = self.pending.drain(..LONGEST_LINE - OVERLAP).collect();
            let overlap = self.pending.get(..OVERLAP).unwrap_or_default();
            let piece = [piece.as_slice(), overlap].concat();
            self.line(&piece, b"", None);
        }
    }

    /// Whether every line must be read.
    fn is_attentive(&self) -> bool {
        !self.waiting.is_empty() || self.life.is_watching() || self.tracebacks.is_open()
    }

    /// Reads lines that are complete, each with its end.
    fn whole_lines(&mut self, lines: &[u8]) {
        let mut block = Block::new(lines, LONGEST_LINE);
        loop {
            let found = !self.kept.findings().is_empty() || !self.waiting.is_empty();
            if !self.is_attentive() && !block.skip_to_candidate(self.needles, &mut self.lines, found) {
                break;
            }
            let before = block.passed();
            let Some((line, signatures)) = block.line(self.needles, found) else { break };
            self.long_line(line, before, signatures);
            self.lines += 1;
        }
        self.history.extend(lines);
    }

    /// A line of any length, in the pieces in which [`Self::extend`] would have read it.
    fn long_line(&mut self, mut line: &[u8], before: &[u8], signatures: Option<u128>) {
        if line.len() <= LONGEST_LINE {
            return self.line(line, before, signatures);
        }
        while line.len() > LONGEST_LINE {
            self.line(line.get(..LONGEST_LINE).unwrap_or(line), before, None);
            line = line.get(LONGEST_LINE - OVERLAP..).unwrap_or_default();
        }
        self.line(line, before, None);
    }

    /// A line, in which a progress bar may have gone back to the start several times, and whose needles may be known.
    fn line(&mut self, raw: &[u8], before: &[u8], signatures: Option<u128>) {
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let is_whole = memchr(b'\r', raw).is_none();
        for part in raw.split(|byte| *byte == b'\r').filter(|part| !part.is_empty()) {
            let clean = without_codes(part);
            let known = signatures.filter(|_| is_whole);
            let candidates = known.unwrap_or_else(|| self.needles.signatures(&clean));
            if candidates == 0 && !self.is_attentive() {
                continue;
            }
            let starts = glued_starts(&clean);
            if starts.is_empty() {
                self.behind_bar(&clean, candidates, before, None);
                continue;
            }
            let pieces = cut_at(&clean, &starts);
            let labelled = pieces.first().and_then(|first| Line::new(first).rank);
            for piece in pieces {
                // What ends a line counts for some needles.
                let candidates = self.needles.signatures(piece);
                self.behind_bar(piece, candidates, before, labelled);
            }
        }
    }

    /// A line: what is written behind a progress bar without a line's end is a line of its own.
    fn behind_bar(&mut self, clean: &[u8], candidates: u128, before: &[u8], labelled: Option<u32>) {
        match behind_bar(clean) {
            Some((bar, rest)) => {
                self.part(bar, 0, before, labelled);
                self.part(rest, candidates, before, labelled);
            }
            None => self.part(clean, candidates, before, labelled),
        }
    }

    /// Shows what a line says to the messages that wait, and to the signatures that are `candidates`; `labelled` is the
    /// rank that the whole of it is labelled with.
    fn part(&mut self, clean: &[u8], candidates: u128, before: &[u8], labelled: Option<u32>) {
        let mut line = Line::new(self.around().inside(clean));
        line.rank = line.rank.or(labelled);
        self.go_on(&line);
        self.life.line(&line, self.lines + 1);
        // Most lines with a needle say nothing: only of the others it matters whether they are quoted.
        let mark = MARKED.iter().any(|kind| is_marked(candidates, *kind)) || self.tracebacks.is_open();
        let reading = self.signatures(&line, candidates);
        if (mark || reading.is_some()) && !quote::by_itself(&line) {
            if let Some((signature, reading)) = reading.filter(|_| !code::is_code(&line.text)) {
                self.found(signature, &line, reading, before);
            }
            if mark {
                self.marks(&line, candidates, before);
            }
        }
        if is_marked(candidates, Kind::Fence) {
            self.fences.line(&line, self.lines + 1);
        }
    }

    /// What the first signature that knows the line makes of it.
    fn signatures(&self, line: &Line, mut candidates: u128) -> Option<(usize, Reading)> {
        while candidates != 0 {
            let at = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            if let Some(reading) = (SIGNATURES.get(at)?.read)(&line.text) {
                return Some((at, reading));
            }
        }
        None
    }

    /// What a line is read for beside signatures.
    fn marks(&mut self, line: &Line, candidates: u128, before: &[u8]) {
        if self.tracebacks.is_open() || is_marked(candidates, Kind::Traceback) {
            let ended = self.tracebacks.read(line, self.lines + 1);
            ended.into_iter().for_each(|ended| self.raised(ended, before));
        }
        self.chain.2 |= is_marked(candidates, Kind::Chain) && CHAINS.iter().any(|words| line.text.starts_with(words));
        if is_marked(candidates, Kind::Life) {
            self.life.words(line, self.lines + 1);
        }
    }

    /// A draft of a finding at a line.
    fn draft(&self, line: u64, rank: Option<u32>, text: &str, tone: Tone) -> Draft {
        let (text, fence) = (cut_text(text, LONGEST_EVIDENCE).to_owned(), self.fences.current());
        Draft { line, rank, text, tone, fence, around: Around::default() }
    }

    fn found(&mut self, signature: usize, line: &Line, reading: Reading, before: &[u8]) {
        let name = SIGNATURES.get(signature).map_or("", |signature| signature.name);
        let number = self.lines + 1;
        let mut draft = self.draft(number, line.rank, &line.text, Tone::of_line(&line.text));
        if !self.kept.is_full(name, line.rank) {
            let history = self.history.text(before);
            if quote::by_context(&history, line.indent, &line.text) {
                return;
            }
            draft.around = lines_around(&history, number, &line.text);
            if is_logged(line) {
                self.life.logged(number);
            }
            draft.around.stamp = line.stamp.or(draft.around.stamp);
            self.setting.learn(&history);
        }
        let waiting = Waiting::new(signature, draft, &line.text, reading);
        if waiting.is_over() || self.waiting.len() >= MOST_WAITING {
            self.keep(waiting);
        } else {
            // Its last lines may be the first that say that the job lives.
            self.life.watch(&self.head, number);
            self.waiting.push(waiting);
        }
    }
}

/// Whether a mark of the kind is among the candidates.
fn is_marked(candidates: u128, kind: Kind) -> bool {
    let is =
        |(at, mark): (usize, &crate::mark::Mark)| mark.kind == kind && candidates >> (SIGNATURES.len() + at) & 1 == 1;
    candidates >> SIGNATURES.len() != 0 && MARKS.iter().enumerate().any(is)
}

/// The name under which exceptions are found that no signature knows.
pub(crate) const RAISED: &str = "traceback";
