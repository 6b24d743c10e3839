//! [`Waiting`]: a message that may go on over further lines, and [`Draft`], a finding whose cause is not known yet.

use crate::cause::FailureCause;
use crate::finding::{Finding, Tone};
use crate::history::Around;
use crate::line::Line;
use crate::signature::{Reading, SIGNATURES};
use crate::stamp::Stamp;
use crate::traceback::cut_text;

/// Lines after which a message is over, whoever wrote them.
const LONGEST_WAIT: usize = 256;
/// Bytes of a message that are kept as evidence.
pub(crate) const LONGEST_EVIDENCE: usize = 600;

/// A message that may go on.
pub(crate) struct Waiting {
    pub(crate) signature: usize,
    pub(crate) finding: Draft,
    pub(crate) text: String,
    /// What has been understood so far.
    best: Option<FailureCause>,
    /// Lines of its rank that may still belong to it.
    more: usize,
    /// Lines of anybody.
    patience: usize,
}

/// A finding whose cause is not known yet.
pub(crate) struct Draft {
    pub(crate) line: u64,
    pub(crate) rank: Option<u32>,
    /// The first line, as evidence.
    pub(crate) text: String,
    pub(crate) tone: Tone,
    pub(crate) fence: usize,
    pub(crate) around: Around,
}

impl Draft {
    pub(crate) fn into_finding(self, cause: FailureCause, signature: &'static str) -> Finding {
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
            crashed_at: None,
            fence: self.fence,
        }
    }
}

impl Waiting {
    /// What signature number `signature` made of its first line.
    pub(crate) fn new(signature: usize, finding: Draft, text: &str, reading: Reading) -> Self {
        let more = match SIGNATURES.get(signature) {
            Some(signature) if !reading.complete => signature.follow,
            _ => 0,
        };
        Self { signature, finding, text: text.to_owned(), best: reading.cause, more, patience: LONGEST_WAIT }
    }

    /// Whether further lines can add nothing.
    pub(crate) const fn is_over(&self) -> bool {
        self.more == 0 || self.patience == 0
    }

    /// A further line; true when nothing more can come.
    pub(crate) fn line(&mut self, line: &Line) -> bool {
        let same = line.rank.is_none() || self.finding.rank.is_none() || line.rank == self.finding.rank;
        self.more -= usize::from(same);
        self.patience -= 1;
        (same && self.add(&line.text)) || self.is_over()
    }

    /// The finding, where anything was understood.
    pub(crate) fn into_finding(mut self) -> Option<Finding> {
        let signature = SIGNATURES.get(self.signature).map_or("", |signature| signature.name);
        // torchrun's summary states when the worker failed.
        let time = self.text.lines().find(|line| line.trim_start().starts_with("time "));
        self.finding.around.stamp = time.and_then(Stamp::of_line).or(self.finding.around.stamp);
        self.best.map(|cause| self.finding.into_finding(cause, signature))
    }

    /// Reads the message with one more line.
    fn add(&mut self, line: &str) -> bool {
        self.text.push('\n');
        self.text.push_str(cut_text(line, LONGEST_EVIDENCE));
        let Some(signature) = SIGNATURES.get(self.signature) else { return true };
        let Some(reading) = (signature.read)(&self.text) else { return false };
        self.best = reading.cause.or(self.best.take());
        reading.complete
    }
}
