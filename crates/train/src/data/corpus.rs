//! Texts and rows from files: plain text is one text, JSON lines have a text, a prompt with its completion, or messages each.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tonnage_core::job::{RowKind, is_json_lines};

use crate::error::TrainError;

/// A file is read whole: what is trained on is kept in memory as tokens, which are larger.
const MOST_BYTES: u64 = 8 << 30;
/// A line of JSON lines.
const MOST_LINE: u64 = 64 << 20;

/// A prompt with what is to follow it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pair {
    /// What is given.
    pub prompt: String,
    /// What is learnt.
    pub completion: String,
}

/// Messages in their order, each with `role`, and with whatever else the chat template reads.
pub type Conversation = Vec<Value>;

/// What a file holds, all of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A document each, as read.
    Texts(Vec<String>),
    /// Prompts with completions.
    Pairs(Vec<Pair>),
    /// To be put into words by the tokenizer's template.
    Conversations(Vec<Conversation>),
}

/// Reads a file: JSON lines by what their first line holds, everything else as one text.
///
/// # Errors
/// As [`read_texts`], and when a line holds something else than the first.
pub fn read(path: &Path, key: &str) -> Result<Content, TrainError> {
    if !is_lines(path) {
        return read_texts(path, key).map(Content::Texts);
    }
    let values = read_values(path)?;
    let kind = values.first().and_then(|(_, first)| RowKind::of_value(first, key));
    match kind {
        Some(RowKind::Text) => texts_of(path, key, values).map(Content::Texts),
        Some(RowKind::Conversation) => values
            .into_iter()
            .map(|row| read_conversation(path, row))
            .collect::<Result<_, _>>()
            .map(Content::Conversations),
        Some(RowKind::Pair) => rows_of(path, values, "`prompt` and `completion` as texts").map(Content::Pairs),
        None => Err(text_error(
            path,
            format!("its first line has neither `{key}`, nor `prompt` and `completion`, nor `messages`"),
            "name the field of the text with `text_field` below `[data]`",
        )),
    }
}

/// The messages of a line.
fn read_conversation(path: &Path, (number, mut value): (u64, Value)) -> Result<Conversation, TrainError> {
    let messages = value.get_mut("messages").map(Value::take);
    let has_role = |message: &Value| message.get("role").is_some_and(Value::is_string);
    match messages {
        Some(Value::Array(messages)) if messages.iter().all(has_role) => Ok(messages),
        _ => Err(text_error(
            path,
            format!("line {number} has not `messages`, each with `role` and `content`"),
            "all lines are of the first one's kind",
        )),
    }
}

fn rows_of<T: serde::de::DeserializeOwned>(
    path: &Path,
    values: Vec<(u64, Value)>,
    wanted: &str,
) -> Result<Vec<T>, TrainError> {
    let row = |(number, value)| {
        serde_json::from_value(value).map_err(|error| {
            text_error(
                path,
                format!("line {number} has not {wanted}: {error}"),
                "all lines are of the first one's kind",
            )
        })
    };
    values.into_iter().map(row).collect()
}

fn texts_of(path: &Path, key: &str, values: Vec<(u64, Value)>) -> Result<Vec<String>, TrainError> {
    let text = |(number, value): (u64, Value)| {
        value.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
            text_error(
                path,
                format!("line {number} has no text `{key}`"),
                "name the field of the text with `text_field` below `[data]`",
            )
        })
    };
    values.into_iter().map(text).collect()
}

fn is_lines(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(is_json_lines)
}

fn read_values(path: &Path) -> Result<Vec<(u64, Value)>, TrainError> {
    read_lines(path, open_file(path)?)
}

/// The file, unless it is larger than what is kept in memory.
fn open_file(path: &Path) -> Result<File, TrainError> {
    let file = File::open(path).map_err(|error| TrainError::about_file(path, error))?;
    let bytes = file.metadata().map_err(|error| TrainError::about_file(path, error))?.len();
    if bytes > MOST_BYTES {
        return Err(text_error(
            path,
            format!("{bytes} bytes are more than is kept in memory"),
            "split it into several files",
        ));
    }
    Ok(file)
}

/// Reads the texts of a file: `.jsonl` and `.ndjson` by the field `key`, everything else as one text.
///
/// # Errors
/// When the file cannot be read, is no UTF-8, is larger than 8 GiB, or a line of it has no text.
pub fn read_texts(path: &Path, key: &str) -> Result<Vec<String>, TrainError> {
    let file = open_file(path)?;
    if is_lines(path) {
        return texts_of(path, key, read_lines(path, file)?);
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(|error| TrainError::about_file(path, error))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        text_error(path, format!("byte {at} is no UTF-8"), "convert it, for example with `iconv -t UTF-8`")
    })?;
    Ok(vec![text])
}

fn read_lines(path: &Path, file: File) -> Result<Vec<(u64, Value)>, TrainError> {
    let mut reader = BufReader::new(file);
    let (mut values, mut line, mut number) = (Vec::new(), Vec::new(), 0_u64);
    loop {
        line.clear();
        number += 1;
        let read = reader
            .by_ref()
            .take(MOST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| TrainError::about_file(path, error))?;
        if read == 0 {
            return Ok(values);
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if read as u64 == MOST_LINE {
            return Err(text_error(
                path,
                format!("line {number} is longer than 64 MiB"),
                "a line is one text; split it",
            ));
        }
        let value: Value = serde_json::from_slice(&line).map_err(|error| {
            text_error(path, format!("line {number}: {error}"), "each line is an object of its own")
        })?;
        values.push((number, value));
    }
}

fn text_error(path: &Path, problem: String, hint: &'static str) -> TrainError {
    TrainError::Text { path: path.to_owned(), problem, hint }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str, content: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tonnage-corpus-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn plain_text_is_one_text_and_lines_have_one_each() {
        let plain = file("a.txt", "first\nsecond".as_bytes());
        assert_eq!(read_texts(&plain, "text").unwrap(), ["first\nsecond"]);
        let lines = file("b.jsonl", b"{\"text\": \"one\"}\n\n{\"text\": \"two\", \"id\": 3}");
        assert_eq!(read_texts(&lines, "text").unwrap(), ["one", "two"]);
        fs::remove_file(plain).unwrap();
        fs::remove_file(lines).unwrap();
    }

    #[test]
    fn lines_are_read_by_what_the_first_holds() {
        let pairs = file("e.jsonl", b"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\"}\n");
        let error = read(&pairs, "text").unwrap_err().to_string();
        assert!(error.contains("line 2 has not `prompt` and `completion`"), "{error}");
        let talks = file("f.jsonl", b"{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
        let Content::Conversations(found) = read(&talks, "text").unwrap() else { panic!("not conversations") };
        assert_eq!(found[0][0]["role"], "user");
        let other = file("g.jsonl", b"{\"body\": 1}");
        assert!(read(&other, "text").unwrap_err().to_string().contains("text_field"));
        for path in [pairs, talks, other] {
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_is_no_text_is_named_with_its_line() {
        for (name, content, wanted) in [
            ("no.jsonl", b"{\"text\": \"one\"}\n{\"body\": 1}\n".as_slice(), "line 2 has no text `text`"),
            ("torn.jsonl", b"{\"text\": \"one\"}\n{\"text\": \"tw", "line 2: EOF"),
            ("latin.txt", b"caf\xe9", "byte 3 is no UTF-8"),
        ] {
            let path = file(name, content);
            let error = read_texts(&path, "text").unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("hint: "), "{error}");
            fs::remove_file(path).unwrap();
        }
        assert!(
            read_texts(Path::new("/no/such/file.txt"), "text").unwrap_err().to_string().contains("/no/such/file.txt")
        );
    }
}
