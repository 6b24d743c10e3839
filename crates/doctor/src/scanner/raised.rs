//! What is made of a traceback that has ended.

use super::aside::{is_aside, is_ignored};
use super::{RAISED, Scanner, is_logged};
use crate::cause::FailureCause;
use crate::exception::Raiser;
use crate::finding::{Finding, Tone};
use crate::history::lines_around;
use crate::line::Line;
use crate::quote;
use crate::text::has_phrase;
use crate::traceback::Ended;
use crate::wording;

impl Scanner {
    /// A traceback has ended: where a signature knew its last line, that gains its place; else it is a finding.
    pub(super) fn raised(&mut self, ended: Ended, before: &[u8]) {
        let chained = (std::mem::take(&mut self.chain.2) || ended.is_original) && self.chain.0 == ended.rank;
        let chain = if chained { self.chain.1 } else { ended.head };
        self.chain = (ended.rank, chain, false);
        // Of many alike only the first are told apart: to read what stood before each is slow.
        let is_full = self.kept.is_full(RAISED, ended.rank);
        let history = if is_full { String::new() } else { self.history.text(before) };
        let is_aside = ended.is_warned
            || ended.is_record
            || is_aside(&history, self.lines.saturating_sub(ended.head))
            || quote::may_be_in_sample(&history, self.lines.saturating_sub(ended.head))
            || (is_full && self.kept.is_aside(RAISED, &ended));
        if is_aside && !is_full {
            self.life.remember(&history, self.lines);
        }
        let tone = match is_aside {
            true => Tone::Warned,
            false => Tone::Raised { place: ended.place.clone(), phase: ended.phase, chain },
        };
        let lines = ended.line..=ended.last_line;
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| lines.contains(&waiting.finding.line)) {
            waiting.finding.tone = tone;
            return;
        }
        if self.kept.at_line(&ended, &tone) {
            return;
        }
        let back = self.lines.saturating_sub(ended.head);
        if ended.is_of_exit || is_ignored(&ended.exception, &history, back) {
            self.ignored = ended.last_line;
            return;
        }
        if !is_full && is_told(&history, back) {
            self.life.logged(ended.line);
        }
        let place = Tone::Raised { place: ended.place, phase: ended.phase, chain };
        let mut draft = self.draft(ended.line, ended.rank, &ended.text, place);
        let mut cause = ended.exception;
        if is_aside {
            cause.raiser = Raiser::Aside;
        }
        if !is_full {
            if quote::by_context(&history, 0, &ended.text)
                || quote::in_commit(&history)
                || (ended.indent >= 4 && quote::in_advice(&history))
                || quote::in_sample(&history, back)
            {
                self.ignored = ended.last_line;
                return;
            }
            draft.around = lines_around(&history, self.lines + 1, "");
            self.setting.learn(&history);
        }
        let spoken = (cause.raiser == Raiser::Program).then(|| wording::of_exception(&cause.name, &cause.message));
        let finding = draft.into_finding(spoken.flatten().unwrap_or(FailureCause::Raised(cause)), RAISED);
        // One line below it may say another thing than that the same is told at length.
        let last_line = if ended.last_line > ended.line + 1 { ended.last_line } else { finding.last_line };
        self.keep_finding(Finding { last_line, ..finding });
    }
}

/// Whether a logger put a line with the time and a level right above the traceback's head, `back` lines ago, or before it.
fn is_told(history: &str, back: u64) -> bool {
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    history
        .lines()
        .rev()
        .skip(back)
        .take(2)
        .any(|text| !has_phrase(text, "INFO") && is_logged(&Line::new(text.as_bytes())))
}
