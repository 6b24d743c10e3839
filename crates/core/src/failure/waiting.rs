//! [`Waiting`]: a message that may go on over further lines, and [`Draft`], a finding whose cause is not known yet.

use super::cause::FailureCause;
use super::finding::{Finding, Tone};
use super::history::Around;
use super::line::Line;
use super::signature::{Reading, SIGNATURES};
use super::stamp::Stamp;
use super::traceback::cut;

/// Lines after which a message is over, whoever wrote them.
const LONGEST_WAIT: usize = 256;
/// Bytes of a message that are kept as evidence.
pub(super) const LONGEST_EVIDENCE: usize = 600;

/// A message that may go on.
pub(super) struct Waiting {
    pub(super) signature: usize,
    pub(super) finding: Draft,
    pub(super) text: String,
    /// What has been understood so far.
    best: Option<FailureCause>,
    /// Lines of its rank that may still belong to it.
    more: usize,
    /// Lines of anybody.
    patience: usize,
}

/// A finding whose cause is not known yet.
pub(super) struct Draft {
    pub(super) line: u64,
    pub(super) rank: Option<u32>,
    /// The first line, as evidence.
    pub(super) text: String,
    pub(super) tone: Tone,
    pub(super) fence: usize,
    pub(super) around: Around,
}

impl Draft {
    pub(super) fn into_finding(self, cause: FailureCause, signature: &'static str) -> Finding {
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
    /// What signature number `signature` made of its first line.
    pub(super) fn new(signature: usize, finding: Draft, text: &str, reading: Reading) -> Self {
        let more = match SIGNATURES.get(signature) {
            Some(signature) if !reading.complete => signature.follow,
            _ => 0,
        };
        Self { signature, finding, text: text.to_owned(), best: reading.cause, more, patience: LONGEST_WAIT }
    }

    /// Whether further lines can add nothing.
    pub(super) const fn is_over(&self) -> bool {
        self.more == 0 || self.patience == 0
    }

    /// A further line; true when nothing more can come.
    pub(super) fn line(&mut self, line: &Line) -> bool {
        let same = line.rank.is_none() || self.finding.rank.is_none() || line.rank == self.finding.rank;
        self.more -= usize::from(same);
        self.patience -= 1;
        (same && self.add(&line.text)) || self.is_over()
    }

    /// The finding, where anything was understood.
    pub(super) fn into_finding(mut self) -> Option<Finding> {
        let signature = SIGNATURES.get(self.signature).map_or("", |signature| signature.name);
        // torchrun's summary states when the worker failed.
        let time = self.text.lines().find(|line| line.trim_start().starts_with("time "));
        self.finding.around.stamp = time.and_then(Stamp::of_line).or(self.finding.around.stamp);
        self.best.map(|cause| self.finding.into_finding(cause, signature))
    }

    /// Reads the message with one more line.
    fn add(&mut self, line: &str) -> bool {
        self.text.push('\n');
        self.text.push_str(cut(line, LONGEST_EVIDENCE));
        let Some(signature) = SIGNATURES.get(self.signature) else { return true };
        let Some(reading) = (signature.read)(&self.text) else { return false };
        self.best = reading.cause.or(self.best.take());
        reading.complete
    }
}
