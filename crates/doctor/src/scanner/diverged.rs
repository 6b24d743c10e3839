//! Losses that are no numbers up to a log's end: a training that goes on and has nothing to show for it.

use tonnage_core::failure::{Class, Strength};

use super::Scanner;
use crate::cause::FailureCause;
use crate::finding::{Finding, Tone};
use crate::line::Line;
use crate::text::find_phrase;

/// Rows at a log's end whose losses are all no numbers.
const ROWS: usize = 3;
/// A longer line says more than that.
const SHORT: usize = 80;
/// A longer line is no row.
const LONGEST: usize = 1000;

impl Scanner {
    /// Finds losses that are all no numbers in the last lines, where nothing else explains the end.
    pub(super) fn diverged(&mut self, tail: &str) {
        if self.kept.findings().iter().any(|finding| finding.strength() >= Strength::Death) {
            return;
        }
        self.ends_with_lost_loss(tail);
        let numbered = tail.lines().rev().zip((1..=self.lines).rev());
        let rows =
            numbered.filter(|(text, _)| text.len() <= LONGEST || text.contains('\r')).filter_map(|(text, number)| {
                let text = text.rsplit('\r').find(|part| !part.is_empty())?;
                Some((number, Line::new(text.as_bytes()), has_lost(text)?))
            });
        let rows: Vec<_> = rows.take(ROWS).collect();
        if rows.len() < ROWS || !rows.iter().all(|(.., lost)| *lost) {
            return;
        }
        let Some((number, line, _)) = rows.last() else { return };
        let cause = FailureCause::Stated { class: Class::Divergence, detail: None };
        let draft = self.draft(*number, line.rank, &line.text, Tone::Said);
        // It goes on to the end.
        let last_line = self.lines;
        self.keep_finding(Finding { last_line, ..draft.into_finding(cause, "losses_are_nan") });
    }

    /// Finds that the very last line says it: `Loss is NAN: batch 238`.
    fn ends_with_lost_loss(&mut self, tail: &str) {
        let numbered = tail.lines().rev().zip((1..=self.lines).rev());
        let Some((text, number)) = numbered.clone().find(|(text, _)| !text.trim().is_empty()) else { return };
        let line = Line::new(text.as_bytes());
        let begins = line.text.get(..12).is_some_and(|start| start.to_ascii_lowercase().starts_with("loss is nan"));
        if begins && line.text.len() < SHORT {
            let cause = FailureCause::Stated { class: Class::Divergence, detail: None };
            let draft = self.draft(number, line.rank, &line.text, Tone::Said);
            self.keep_finding(draft.into_finding(cause, "losses_are_nan"));
        }
    }
}

/// Whether the first loss that a line states, of training, is no number; `None` where it states none.
fn has_lost(text: &str) -> Option<bool> {
    let at = find_phrase(text, "oss")?;
    let before = text.get(..at)?.to_ascii_lowercase();
    let word = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default();
    let is_training = ["l", "train_l", "training_l", "total_l"].contains(&word)
        && !before.contains("val")
        && !before.contains("test")
        && !before.contains("eval");
    let value = text.get(at + 3..)?.trim_start_matches(['\'', '"', ':', '=', ' ', '\t', '(', '[']);
    let value = value.split([' ', ',', '}', ')', ']', '|', ';', '\t']).next()?.to_ascii_lowercase();
    let is_lost = value == "nan";
    (is_training && (is_lost || value.parse::<f64>().is_ok())).then_some(is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_training_counts() {
        let cases = [
            ("step 12/500 | loss nan | lr 1e-4", Some(true)),
            ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.25}", Some(true)),
            ("{'loss': 1.25, 'grad_norm': nan}", Some(false)),
            ("Epoch 3 train_loss=nan", Some(true)),
            ("{'eval_loss': nan, 'eval_runtime': 17.5}", None),
            ("Val Loss: nan", None),
            ("the loss is nan", None),
            ("cross entropy", None),
        ];
        for (text, expected) in cases {
            assert_eq!(has_lost(text), expected, "{text}");
        }
    }
}
