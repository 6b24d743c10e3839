//! Texts from files: plain text is one text, JSON lines have one each.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use crate::error::TrainError;

/// A file is read whole: what is trained on is kept in memory as tokens, which are larger.
const MOST_BYTES: u64 = 8 << 30;
/// A line of JSON lines.
const MOST_LINE: u64 = 64 << 20;

/// Reads the texts of a file: `.jsonl` and `.ndjson` by the field `key`, everything else as one text.
///
/// # Errors
/// When the file cannot be read, is no UTF-8, is larger than 8 GiB, or a line of it has no text.
pub fn read_texts(path: &Path, key: &str) -> Result<Vec<String>, TrainError> {
    let file = File::open(path).map_err(|error| TrainError::file(path, error))?;
    let bytes = file.metadata().map_err(|error| TrainError::file(path, error))?.len();
    if bytes > MOST_BYTES {
        return Err(text_error(
            path,
            format!("{bytes} bytes are more than is kept in memory"),
            "split it into several files",
        ));
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    if matches!(ending.as_str(), "jsonl" | "ndjson") {
        return read_lines(path, file, key);
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(|error| TrainError::file(path, error))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        text_error(path, format!("byte {at} is no UTF-8"), "convert it, for example with `iconv -t UTF-8`")
    })?;
    Ok(vec![text])
}

fn read_lines(path: &Path, file: File, key: &str) -> Result<Vec<String>, TrainError> {
    let mut reader = BufReader::new(file);
    let (mut texts, mut line, mut number) = (Vec::new(), Vec::new(), 0_u64);
    loop {
        line.clear();
        number += 1;
        let read = reader
            .by_ref()
            .take(MOST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| TrainError::file(path, error))?;
        if read == 0 {
            return Ok(texts);
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
        let text = value.get(key).and_then(Value::as_str).ok_or_else(|| {
            text_error(path, format!("line {number} has no text `{key}`"), "name the field of the text with `text_key`")
        })?;
        texts.push(text.to_owned());
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
