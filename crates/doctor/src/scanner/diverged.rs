//! Losses that are no numbers up to a log's end: a training that goes on and has nothing to show for it.

use tonnage_core::failure::{Class, Strength};

use super::Scanner;
use crate::cause::FailureCause;
use crate::finding::{Finding, Tone};
use crate::line::Line;
use crate::text::find_phrase;

/// Rows at a log's end whose losses are all no numbers.
const ROWS: usize = 3;
/// Fewer where each one's gradients are none either: one may be of a loss scale that falls.
const ROWS_WITH_GRADIENTS: usize = 2;
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
                Some((number, Line::new(text.as_bytes()), row_of(text)?))
            });
        let rows: Vec<_> = rows.take_while(|(.., row)| *row != Row::Sound).collect();
        let enough = if rows.iter().all(|(.., row)| *row == Row::Void) { ROWS_WITH_GRADIENTS } else { ROWS };
        let Some((number, line, _)) = rows.last().filter(|_| rows.len() >= enough) else { return };
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

/// What a row of a training states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// A loss that is a number.
    Sound,
    /// A loss that is none.
    Lost,
    /// Neither the loss nor the gradients' norm is one. Hugging Face's Trainer leaves losses that are none out of its mean,
    /// of which 0 is left (`logging_nan_inf_filter`).
    Void,
}

/// What a line with a loss of training states first; `None` where it states none.
fn row_of(text: &str) -> Option<Row> {
    let at = find_phrase(text, "oss")?;
    let before = text.get(..at)?.to_ascii_lowercase();
    let word = before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default();
    let is_training = ["l", "train_l", "training_l", "total_l"].contains(&word)
        && !before.contains("val")
        && !before.contains("test")
        && !before.contains("eval");
    if !is_training {
        return None;
    }
    let loss = value_behind(text, at + "oss".len())?;
    let has_no_gradients = || {
        let norms = ["grad_norm", "grad norm", "gradient_norm", "gnorm"];
        let norm = norms.iter().find_map(|name| value_behind(text, find_phrase(text, name)? + name.len()));
        norm.is_some_and(f64::is_nan)
    };
    Some(match (loss.is_nan(), loss == 0.0) {
        (true, _) if has_no_gradients() => Row::Void,
        (true, _) => Row::Lost,
        (_, true) if has_no_gradients() => Row::Void,
        _ => Row::Sound,
    })
}

/// The number behind a name, however it is written: `: nan`, `': 'nan'`, `=tensor(nan, device=`.
fn value_behind(text: &str, at: usize) -> Option<f64> {
    let signs = ['\'', '"', ':', '=', ' ', '\t', '(', '['];
    let value = text.get(at..)?.trim_start_matches(signs);
    let value = value.strip_prefix("tensor(").unwrap_or(value);
    let value = value.split([' ', ',', '}', ')', ']', '|', ';', '\t', '\'', '"']).next()?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_training_counts() {
        let cases = [
            ("step 12/500 | loss nan | lr 1e-4", Some(Row::Lost)),
            ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.25}", Some(Row::Void)),
            ("{'loss': '0', 'grad_norm': 'nan', 'epoch': '0.25'}", Some(Row::Void)),
            ("{'loss': 0.0, 'grad_norm': tensor(nan, device='cuda:0')}", Some(Row::Void)),
            ("step: 3  loss: nan  grad_norm: 2.1", Some(Row::Lost)),
            ("{'loss': 0.0, 'grad_norm': 0.0}", Some(Row::Sound)),
            ("{'loss': 1.25, 'grad_norm': nan}", Some(Row::Sound)),
            ("Epoch 3 train_loss=nan", Some(Row::Lost)),
            ("{'eval_loss': nan, 'eval_runtime': 17.5}", None),
            ("Val Loss: nan", None),
            ("the loss is nan", None),
            ("cross entropy", None),
        ];
        for (text, expected) in cases {
            assert_eq!(row_of(text), expected, "{text}");
        }
    }

    #[test]
    fn rows_without_gradients_are_a_divergence_up_to_the_end() {
        let found = |log: &str| {
            let mut scanner = Scanner::new();
            scanner.feed(log.as_bytes());
            let findings = scanner.finish().findings;
            findings.first().map(|finding| (finding.class(), finding.line))
        };
        let sound = "{'loss': 1.7, 'grad_norm': 0.9, 'learning_rate': 2e-05, 'epoch': 0.3}\n";
        let void = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.4}\n";
        let skipped = "{'loss': 1.7, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.4}\n";
        let lost = "{'loss': nan, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.5}\n";
        let eval = "{'eval_loss': nan, 'epoch': 0.5}\n";
        let diverged = Some((Class::Divergence, 2));
        assert_eq!(found(&format!("{sound}{}", void.repeat(3))), diverged);
        assert_eq!(found(&format!("{sound}{void}{lost}{eval}")), diverged);
        assert_eq!(found(&format!("{sound}{}", lost.repeat(2))), diverged);
        for quiet in [
            format!("{sound}{void}"),
            format!("{sound}{}", skipped.repeat(4)),
            format!("{}{sound}", void.repeat(3)),
            format!("{sound}{}{sound}{void}", lost.repeat(2)),
        ] {
            assert_eq!(found(&quiet), None, "{quiet}");
        }
    }
}
