//! [`History`]: the last lines of a log, in memory that does not grow: what a job did just before it failed.

use std::borrow::Cow;

use crate::line::without_codes;
use crate::phase::Phase;
use crate::prefix;
use crate::progress::{Progress, may_be_row};
use crate::stamp::Stamp;
use crate::text::has_phrase;

/// Bytes of lines that are remembered: a deep traceback and some steps before it.
const REMEMBERED: usize = 24 << 10;
/// Lines before a finding that are shown with it.
const SHOWN: usize = 2;
/// Steps before a finding that are kept.
const STEPS_KEPT: usize = 4;
/// Bytes of a line that is shown.
const LONGEST_SHOWN: usize = 300;

/// Whole lines, the last ones.
#[derive(Default)]
pub(crate) struct History {
    bytes: Vec<u8>,
    /// Whether there were more.
    is_cut: bool,
}

/// What stood before a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// The last time that was stated, the line's own included.
    pub(crate) stamp: Option<Stamp>,
    /// The last steps, the earlier first.
    pub(crate) steps: Vec<Progress>,
    /// What the job said it was doing.
    pub(crate) phase: Option<Phase>,
    /// The lines just before.
    pub(crate) context: Vec<String>,
}

impl History {
    /// Adds whole lines.
    pub(crate) fn extend(&mut self, lines: &[u8]) {
        if lines.len() >= REMEMBERED {
            self.is_cut |= !self.bytes.is_empty() || lines.len() > REMEMBERED;
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(lines.get(lines.len().saturating_sub(REMEMBERED)..).unwrap_or(lines));
        if self.bytes.len() > 4 * REMEMBERED {
            self.bytes.drain(..self.bytes.len() - REMEMBERED);
            self.is_cut = true;
        }
    }

    /// The text of the last lines, `block` being those that came after what was added.
    pub(crate) fn text(&self, block: &[u8]) -> String {
        let old = REMEMBERED.saturating_sub(block.len());
        let old = self.bytes.get(self.bytes.len().saturating_sub(old)..).unwrap_or_default();
        let new = block.get(block.len().saturating_sub(REMEMBERED)..).unwrap_or_default();
        let bytes: Cow<'_, [u8]> = if old.is_empty() { new.into() } else { [old, new].concat().into() };
        // The first line is cut, unless there was no more.
        let whole = !self.is_cut && self.bytes.len() + block.len() <= REMEMBERED;
        let start = if whole { 0 } else { memchr::memchr(b'\n', &bytes).map_or(0, |end| end + 1) };
        let bytes = bytes.get(start..).unwrap_or_default();
        String::from_utf8_lossy(&without_codes(bytes)).into_owned()
    }
}

/// What a job that will fail at line `number` had said.
pub(crate) fn lines_around(before: &str, number: u64, own: &str) -> Around {
    let mut around = Around { stamp: Stamp::of_line(own), ..Around::default() };
    for (text, line) in before.lines().rev().zip((1..number).rev()) {
        let text = text.rsplit('\r').next().unwrap_or(text);
        let text = text.get(..text.len().min(2000)).unwrap_or_default();
        if around.stamp.is_none() {
            around.stamp = Stamp::of_line(text);
        }
        if around.context.len() < SHOWN && !text.trim().is_empty() {
            around.context.push(crate::traceback::cut_text(text.trim_end(), LONGEST_SHOWN).to_owned());
        }
        if around.steps.len() < STEPS_KEPT
            && let Some(step) = progress_at(text, line)
        {
            around.steps.push(step);
        }
        around.phase = around.phase.or_else(|| phase_in(text).filter(|_| around.steps.is_empty()));
    }
    around.steps.reverse();
    around.context.reverse();
    around
}

/// The steps that the lines state, the last of which is line `last`.
pub(crate) fn steps_before(before: &str, last: u64) -> Vec<Progress> {
    let numbered = before.lines().rev().zip((1..=last).rev());
    let mut steps: Vec<Progress> = numbered
        .filter_map(|(text, line)| progress_at(text.rsplit('\r').next().unwrap_or(text), line))
        .take(64)
        .collect();
    steps.reverse();
    steps
}

fn progress_at(text: &str, line: u64) -> Option<Progress> {
    let may = text.len() < 4000
        && (has_phrase(text, "%|")
            || has_phrase(text, "oss")
            || has_phrase(text, "tep")
            || has_phrase(text, "poch")
            || has_phrase(text, "iter")
            || may_be_row(text));
    let stripped = may.then(|| prefix::strip_prefixes(text))?;
    Progress::of_line(stripped.text, line, stripped.rank.or_else(|| prefix::named_rank(stripped.text)))
}

/// What a trainer says before it does something else than steps.
fn phase_in(text: &str) -> Option<Phase> {
    const SAYS: &[(Phase, &[&str])] = &[
        (
            Phase::Save,
            &[
                "Saving model checkpoint",
                "Saving checkpoint",
                "saving checkpoint",
                "Saving the model",
                "Saving model to",
            ],
        ),
        (
            Phase::Eval,
            &[
                "***** Running Evaluation",
                "Running evaluation",
                "Evaluating:",
                "Sanity Checking",
                "Validation DataLoader",
            ],
        ),
        (
            Phase::Load,
            &[
                "Loading checkpoint shards",
                "loading weights file",
                "Loading model",
                "Loading extension module",
                "Generating train split",
                "Tokenizing",
                "Loading pipeline components",
                "Downloading shards",
            ],
        ),
    ];
    SAYS.iter().find(|(_, words)| words.iter().any(|word| has_phrase(text, word))).map(|(phase, _)| *phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_does_not_depend_on_the_pieces() {
        let lines: String = (0..4000).map(|number| format!("line {number} of a log\n")).collect();
        let mut whole = History::default();
        whole.extend(lines.as_bytes());
        let mut pieces = History::default();
        lines.split_inclusive('\n').for_each(|line| pieces.extend(line.as_bytes()));
        let (head, rest) = lines.split_at(lines.len() / 2 + lines[lines.len() / 2..].find('\n').unwrap() + 1);
        let mut half = History::default();
        half.extend(head.as_bytes());
        assert!(whole.text(b"") == pieces.text(b"") && whole.text(b"") == half.text(rest.as_bytes()));
        assert!(pieces.bytes.len() <= 5 * REMEMBERED);
    }

    #[test]
    fn steps_times_and_phases_before_a_line_are_found() {
        let before = "[2024-05-06 10:11:13,345] start\nstep 11/500 loss 2.0\nstep 12/500 loss 1.9\nSaving model checkpoint to x\n";
        let around = lines_around(before, 5, "RuntimeError: x");
        assert_eq!(around.stamp.and_then(|stamp| stamp.day), Some(506));
        assert_eq!(around.steps.iter().map(|step| (step.line, step.step)).collect::<Vec<_>>(), [(2, 11), (3, 12)]);
        assert_eq!((around.phase, around.context.len()), (Some(Phase::Save), 2));
    }
}
