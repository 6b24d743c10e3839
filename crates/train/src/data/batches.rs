//! Batches of token numbers, in the order that the seed decides: of texts cut into windows, or of rows with labels of their own.

use std::path::{Path, PathBuf};

use tonnage_core::job::RowGrowth;

use super::chat::ChatTemplate;
use super::corpus::{Content, read};
use super::order::{self, Order, Position};
use super::rows::{IGNORED, Row};
use super::tokenizer::Tokenizer;
use super::windows::Windows;
use crate::error::TrainError;

/// Numbers of a batch, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Tokens, `rows` times `tokens`.
    pub ids: Vec<i64>,
    /// As many labels, where they are not the tokens themselves.
    pub labels: Option<Vec<i64>>,
    /// Rows of it.
    pub rows: u64,
    /// Tokens of a row, padding included.
    pub tokens: u64,
    /// Labels that the loss is the mean of.
    pub learnt: u64,
}

impl Batch {
    /// A batch without meaning, for a rehearsal.
    pub fn blank(rows: u64, tokens: u64) -> Self {
        let ids = vec![0; usize::try_from(rows.saturating_mul(tokens)).unwrap_or_default()];
        Self { ids, labels: None, rows, tokens, learnt: rows * tokens.saturating_sub(1) }
    }
}

/// All examples of a training, or of its evaluation.
#[derive(Clone, Debug)]
pub enum Examples {
    /// Texts one behind the other, cut into rows.
    Text(Windows),
    /// Rows of their own lengths.
    Rows {
        /// Each with something to be learnt.
        rows: Vec<Row>,
        /// In which order.
        order: Order,
        /// What fills a row up.
        padding: u32,
    },
}

/// How examples are made of files.
#[derive(Clone, Debug)]
pub struct Making<'a> {
    /// What makes tokens.
    pub tokenizer: &'a Tokenizer,
    /// The tokenizer's chat template, where it has one.
    pub chat: Option<&'a ChatTemplate>,
    /// Whether of messages only those of the assistant are learnt.
    pub assistant_only: bool,
    /// The token between two texts, and behind a completion.
    pub end: Option<u32>,
    /// The field of a line with its text.
    pub field: &'a str,
    /// Tokens of a row.
    pub tokens: usize,
    /// How rows to train on grow to that, where they do.
    pub growth: Option<RowGrowth>,
    /// Decides the order.
    pub seed: u64,
    /// Processes that share the examples.
    pub ranks: u64,
    /// This one of them.
    pub rank: u64,
}

/// What was made of files.
#[derive(Debug)]
pub struct Made {
    /// To train on.
    pub train: Examples,
    /// To evaluate on, where there is enough.
    pub eval: Option<Examples>,
    /// What the user must know of it.
    pub notes: Vec<String>,
}

/// Tokens of everything, before they are shared out.
enum Tokens {
    Text(Vec<u32>),
    Rows(Vec<Row>),
}

impl Making<'_> {
    /// Reads files; `eval_share` of them, at their end, is held out where `eval_files` has none.
    ///
    /// # Errors
    /// When a file cannot be read, or there is less than one row for each process.
    pub fn read(&self, train: &[PathBuf], eval: &[PathBuf], eval_share: f64) -> Result<Made, TrainError> {
        let mut notes = Vec::new();
        let tokens = self.tokens_of(train, &mut notes)?;
        if let Some(chat) = self.chat.filter(|chat| matches!(tokens, Tokens::Rows(_)) && chat.writes_dates()) {
            notes.push(format!(
                "the chat template {} writes the day into rows: on another they are others",
                chat.path().display()
            ));
        }
        let (train, held_out) =
            if eval.is_empty() { split_share(tokens, eval_share) } else { (tokens, self.tokens_of(eval, &mut notes)?) };
        let eval = self.for_eval(held_out, !eval.is_empty() || eval_share > 0.0, &mut notes)?;
        let train = match self.examples(train)? {
            Examples::Text(windows) => Examples::Text(windows.growing(self.growth)),
            rows => rows,
        };
        Ok(Made { train, eval, notes })
    }

    fn for_eval(&self, tokens: Tokens, wanted: bool, notes: &mut Vec<String>) -> Result<Option<Examples>, TrainError> {
        let rows = match &tokens {
            Tokens::Text(text) => text.len().saturating_sub(1) / self.tokens.saturating_sub(1).max(1),
            Tokens::Rows(rows) => rows.len(),
        };
        if rows >= self.ranks.max(1) as usize {
            return self.examples(tokens).map(Some);
        }
        if wanted {
            notes.push(format!("nothing is evaluated: what is held out makes {rows} rows of {} tokens", self.tokens));
        }
        Ok(None)
    }

    fn examples(&self, tokens: Tokens) -> Result<Examples, TrainError> {
        match tokens {
            // A row's tokens are its labels, of which the model itself leaves out the first.
            Tokens::Text(text) => {
                let length = self.tokens.saturating_sub(1).max(1);
                Windows::new(text, length, self.seed, self.ranks, self.rank).map(Examples::Text)
            }
            Tokens::Rows(rows) => {
                let order = Order::new(rows.len() as u64, self.seed, self.ranks, self.rank);
                if order.count() < self.ranks.max(1) {
                    return Err(TrainError::Vocabulary(format!(
                        "{} rows are fewer than {} processes: train on more of them",
                        rows.len(),
                        self.ranks
                    )));
                }
                Ok(Examples::Rows { rows, order, padding: self.end.unwrap_or(0) })
            }
        }
    }

    fn tokens_of(&self, files: &[PathBuf], notes: &mut Vec<String>) -> Result<Tokens, TrainError> {
        let mut all: Option<(Tokens, &Path)> = None;
        for file in files {
            let tokens = match read(file, self.field)? {
                Content::Texts(texts) => Tokens::Text(self.join_texts(&texts)?),
                Content::Pairs(pairs) => {
                    let rows: Result<Vec<_>, _> =
                        pairs.iter().map(|pair| Row::of_pair(self.tokenizer, pair, self.end)).collect();
                    Tokens::Rows(self.cut_rows(rows?, file, notes))
                }
                Content::Conversations(all) => {
                    let rows: Result<Vec<_>, _> = all
                        .iter()
                        .map(|one| Row::of_conversation(self.tokenizer, self.chat, one, self.assistant_only))
                        .collect();
                    Tokens::Rows(self.cut_rows(rows?, file, notes))
                }
            };
            match (&mut all, tokens) {
                (None, tokens) => all = Some((tokens, file)),
                (Some((Tokens::Text(text), _)), Tokens::Text(more)) => text.extend(more),
                (Some((Tokens::Rows(rows), _)), Tokens::Rows(more)) => rows.extend(more),
                (Some((_, first)), _) => {
                    return Err(TrainError::Text {
                        path: file.clone(),
                        problem: format!("is of another kind than {}: one has texts, the other rows", first.display()),
                        hint: "train on the one, then on the other",
                    });
                }
            }
        }
        all.map(|(tokens, _)| tokens).ok_or_else(|| {
            TrainError::Vocabulary(
                "no text is named to train on: `train_files` below `[data]`, or --data-train-files".to_owned(),
            )
        })
    }

    fn join_texts(&self, texts: &[String]) -> Result<Vec<u32>, TrainError> {
        let mut tokens = Vec::new();
        for text in texts {
            tokens.extend(self.tokenizer.encode(text, true)?);
            if texts.len() > 1 {
                tokens.extend(self.end);
            }
        }
        Ok(tokens)
    }

    fn cut_rows(&self, rows: Vec<Row>, file: &Path, notes: &mut Vec<String>) -> Vec<Row> {
        let (all, long) = (rows.len(), rows.iter().filter(|row| row.tokens.len() > self.tokens).count());
        let kept: Vec<Row> = rows.into_iter().filter_map(|row| row.cut_to(self.tokens)).collect();
        let name = file.display();
        if long > 0 {
            notes
                .push(format!("{name}: {long} of {all} rows are longer than {} tokens and are cut there", self.tokens));
        }
        if kept.len() < all {
            notes
                .push(format!("{name}: {} of {all} rows have nothing to be learnt and are left out", all - kept.len()));
        }
        kept
    }
}

/// The last `share` of the tokens or rows for themselves.
fn split_share(tokens: Tokens, share: f64) -> (Tokens, Tokens) {
    let kept = |all: usize| all - ((all as f64 * share) as usize).min(all);
    match tokens {
        Tokens::Text(mut text) => {
            let held_out = text.split_off(kept(text.len()));
            (Tokens::Text(text), Tokens::Text(held_out))
        }
        Tokens::Rows(mut rows) => {
            let held_out = rows.split_off(kept(rows.len()));
            (Tokens::Rows(rows), Tokens::Rows(held_out))
        }
    }
}

impl Examples {
    /// Rows of an epoch, over all processes.
    pub fn rows(&self) -> u64 {
        match self {
            Self::Text(windows) => windows.count(),
            Self::Rows { order, .. } => order.count(),
        }
    }

    /// Rows of the first epoch that this process sees; processes may differ by one.
    pub fn rows_of_rank(&self) -> u64 {
        match self {
            Self::Text(windows) => windows.of_rank(),
            Self::Rows { order, .. } => order.of_rank(),
        }
    }

    /// Whether their labels are other than their tokens.
    pub fn has_own_labels(&self) -> bool {
        matches!(self, Self::Rows { .. })
    }

    /// Micro-batches of `rows` in all epochs, where rows grow over them: the last of an epoch may be smaller.
    pub fn growing_batches(&self, rows: u64) -> Option<u64> {
        let Self::Text(windows) = self else { return None };
        let epochs = windows.growth()?.epochs;
        Some((0..epochs).map(|epoch| windows.order(epoch).of_rank().div_ceil(rows.max(1))).sum())
    }

    /// Batches from `position` on, without end.
    pub fn walk(&self, position: Position) -> BatchWalk<'_> {
        let walk = match self {
            Self::Text(windows) => Steps::Text(windows.walk(position)),
            Self::Rows { order, .. } => Steps::Rows(order.walk(position)),
        };
        BatchWalk { examples: self, walk }
    }
}

#[derive(Debug)]
enum Steps<'a> {
    Text(super::windows::Walk<'a>),
    Rows(order::Walk),
}

/// Batches one after another, epoch after epoch.
#[derive(Debug)]
pub struct BatchWalk<'a> {
    examples: &'a Examples,
    walk: Steps<'a>,
}

impl BatchWalk<'_> {
    /// Where the next batch begins.
    pub fn position(&self) -> Position {
        match &self.walk {
            Steps::Text(walk) => walk.position(),
            Steps::Rows(walk) => walk.position(),
        }
    }

    /// The next `rows` rows of `tokens` tokens.
    pub fn next_batch(&mut self, rows: u64, tokens: usize) -> Batch {
        match (&mut self.walk, self.examples) {
            (Steps::Rows(walk), Examples::Rows { rows: all, padding, .. }) => {
                let chosen: Vec<&Row> = (0..rows).filter_map(|_| all.get(walk.next_example())).collect();
                pad_rows(&chosen, tokens, *padding)
            }
            (Steps::Text(walk), _) => {
                let windows = walk.next_windows(rows);
                let (rows, tokens) = (windows.len() as u64, windows.first().map_or(0, |row| row.len() as u64));
                let ids = windows.into_iter().flatten().map(|token| i64::from(*token)).collect();
                Batch { ids, labels: None, rows, tokens, learnt: rows * tokens.saturating_sub(1) }
            }
            (Steps::Rows(_), Examples::Text(_)) => Batch { ids: vec![], labels: None, rows: 0, tokens: 0, learnt: 0 },
        }
    }
}

/// Rows filled up on their right: what stands before never sees it.
fn pad_rows(rows: &[&Row], tokens: usize, padding: u32) -> Batch {
    let (mut ids, mut labels) = (Vec::new(), Vec::new());
    for row in rows {
        let missing = tokens.saturating_sub(row.tokens.len());
        ids.extend(row.tokens.iter().map(|token| i64::from(*token)));
        ids.extend(std::iter::repeat_n(i64::from(padding), missing));
        labels.extend(&row.labels);
        labels.extend(std::iter::repeat_n(IGNORED, missing));
    }
    let first = |at: usize| at.is_multiple_of(tokens.max(1));
    let learnt = labels.iter().enumerate().filter(|(at, label)| !first(*at) && **label != IGNORED).count() as u64;
    Batch { ids, labels: Some(labels), rows: rows.len() as u64, tokens: tokens as u64, learnt }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::vocabulary::Vocabulary;

    fn file(name: &str, content: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tonnage-batches-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        path
    }

    fn making(tokenizer: &Tokenizer, tokens: usize) -> Making<'_> {
        Making {
            tokenizer,
            chat: None,
            assistant_only: true,
            end: Some(0),
            field: "text",
            tokens,
            growth: None,
            seed: 1,
            ranks: 1,
            rank: 0,
        }
    }

    #[test]
    fn a_text_is_cut_into_rows_that_are_their_own_labels() {
        let path = file("a.txt", &"abcdefgh".repeat(20));
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let made = making(&bytes, 9).read(std::slice::from_ref(&path), &[], 0.2).unwrap();
        assert_eq!((made.train.rows(), made.eval.as_ref().unwrap().rows()), (15, 3));
        let batch = made.train.walk(Position::default()).next_batch(2, 9);
        assert_eq!((batch.ids.len(), batch.labels, batch.learnt), (18, None, 16));
        assert_eq!(batch.ids[..9], [97, 98, 99, 100, 101, 102, 103, 104, 97]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn pairs_are_padded_and_what_is_too_long_is_said() {
        let lines = "{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"prompt\": \"abcdefgh\", \"completion\": \"i\"}\n";
        let path = file("b.jsonl", lines);
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let made = making(&bytes, 6).read(std::slice::from_ref(&path), &[], 0.05).unwrap();
        assert_eq!(made.train.rows(), 1);
        assert!(made.notes.iter().any(|note| note.contains("1 of 2 rows are longer than 6")), "{:?}", made.notes);
        assert!(made.notes.iter().any(|note| note.contains("left out")), "{:?}", made.notes);
        assert!(made.train.has_own_labels());
        let batch = made.train.walk(Position::default()).next_batch(1, 6);
        assert_eq!(batch.ids, [97, 98, 99, 0, 0, 0]);
        assert_eq!(batch.labels.unwrap(), [IGNORED, IGNORED, 99, 0, IGNORED, IGNORED]);
        assert_eq!(batch.learnt, 2);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn texts_and_rows_are_not_mixed_and_nothing_is_said_to_be_nothing() {
        let (text, rows) = (file("c.txt", "abc"), file("d.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}"));
        let bytes = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let error = making(&bytes, 4).read(&[text.clone(), rows.clone()], &[], 0.0).unwrap_err().to_string();
        assert!(error.contains("another kind"), "{error}");
        assert!(making(&bytes, 4).read(&[], &[], 0.0).unwrap_err().to_string().contains("train_files"));
        fs::remove_file(text).unwrap();
        fs::remove_file(rows).unwrap();
    }
}
