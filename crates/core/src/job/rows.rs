//! What a training's rows are made of, by the first line of its data; and how long they are from epoch to epoch.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a line of JSON lines holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Plain text, cut into rows whose tokens are their labels.
    Text,
    /// A `prompt` with the `completion` that is learnt.
    Pair,
    /// `messages`, of which the assistant's are learnt.
    Conversation,
}

impl RowKind {
    /// Of a file called `name` whose first line that is not empty is `first`; `text_field` holds a text. `None` where it holds
    /// nothing that is known.
    pub fn of(name: &str, first: &str, text_field: &str) -> Option<Self> {
        if !is_json_lines(name) {
            return Some(Self::Text);
        }
        Self::of_value(&serde_json::from_str(first).ok()?, text_field)
    }

    /// Of a line as JSON.
    pub fn of_value(value: &Value, text_field: &str) -> Option<Self> {
        [(text_field, Self::Text), ("messages", Self::Conversation), ("prompt", Self::Pair)]
            .into_iter()
            .find_map(|(field, kind)| value.get(field).map(|_| kind))
    }

    /// Whether a row's labels are other than its tokens.
    pub const fn has_own_labels(self) -> bool {
        !matches!(self, Self::Text)
    }
}

/// Whether a file is of JSON lines, by its ending.
pub fn is_json_lines(name: &str) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    matches!(ending.as_str(), "jsonl" | "ndjson")
}

/// Rows that grow from epoch to epoch, as AGI2's trainer has them (`seq_len_start`, `seq_len_end`: roby2358/agi2 at 0d28b1d,
/// src/training.py, `train_model`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowGrowth {
    /// Tokens of a row in the first epoch.
    pub first: u64,
    /// Tokens of a row in the last epoch.
    pub last: u64,
    /// Epochs over which they grow.
    pub epochs: u64,
}

/// So many lengths below the last are simulated, spread over all of them.
const LENGTHS: u64 = 64;

impl RowGrowth {
    /// Tokens of a row in `epoch`, which counts from 0.
    pub fn tokens(&self, epoch: u64) -> u64 {
        if epoch.saturating_add(1) >= self.epochs {
            return self.last;
        }
        let grown = u128::from(self.last.saturating_sub(self.first)) * u128::from(epoch)
            / u128::from(self.epochs.saturating_sub(1).max(1));
        self.first.saturating_add(u64::try_from(grown).unwrap_or(u64::MAX)).min(self.last)
    }

    /// The lengths that are simulated before the last, a step each: all that come, or as many spread over them.
    pub fn rehearsed(&self) -> Vec<u64> {
        let stages = self.epochs.saturating_sub(1);
        let shown = stages.min(LENGTHS);
        let epoch = |at: u64| u64::try_from(u128::from(at) * u128::from(stages) / u128::from(shown.max(1)));
        let mut lengths: Vec<u64> = (0..shown).map(|at| self.tokens(epoch(at).unwrap_or_default())).collect();
        lengths.dedup();
        lengths.retain(|tokens| *tokens < self.last);
        lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_tells_what_rows_are() {
        let kind = |name: &str, first: &str| RowKind::of(name, first, "text");
        assert_eq!(kind("a.txt", "{\"prompt\": 1}"), Some(RowKind::Text));
        assert_eq!(kind("a.jsonl", "{\"text\": \"a\", \"prompt\": 1}"), Some(RowKind::Text));
        assert_eq!(kind("a.JSONL", "{\"prompt\": \"a\", \"completion\": \"b\"}"), Some(RowKind::Pair));
        assert_eq!(kind("a.ndjson", "{\"messages\": []}"), Some(RowKind::Conversation));
        assert_eq!((kind("a.jsonl", "{\"body\": 1}"), kind("a.jsonl", "{")), (None, None));
        assert_eq!(RowKind::of("a.jsonl", "{\"body\": 1}", "body"), Some(RowKind::Text));
    }

    /// `int(2 + (512 - 2) * epoch / 99)` of the trainer, by hand.
    #[test]
    fn rows_grow_as_the_trainer_has_them() {
        let growth = RowGrowth { first: 2, last: 512, epochs: 100 };
        let lengths: Vec<u64> = [0, 1, 2, 50, 98, 99, 1000].map(|epoch| growth.tokens(epoch)).into();
        assert_eq!(lengths, [2, 7, 12, 259, 506, 512, 512]);
        assert_eq!(RowGrowth { epochs: 1, ..growth }.tokens(0), 512);
        let rehearsed = growth.rehearsed();
        assert_eq!((rehearsed.len(), rehearsed[0]), (64, 2));
        assert!(rehearsed.windows(2).all(|pair| pair[0] < pair[1]) && rehearsed.iter().all(|tokens| *tokens < 512));
        assert_eq!(RowGrowth { first: 4, last: 6, epochs: 9 }.rehearsed(), [4, 5]);
        assert!(RowGrowth { first: 8, last: 8, epochs: 9 }.rehearsed().is_empty());
    }
}
