//! From texts to entries: a reader a format, each bounded in depth and size.

mod arithmetic;
pub mod command;
pub mod json;
pub mod python;
mod script;
pub mod shell;
pub mod toml;
pub mod yaml;

use tonnage_core::job::{JobError, JobErrorKind, Place};

/// Tables in tables; configs have five.
pub const MAX_DEPTH: usize = 64;
/// Values of a file, aliases counted as often as they are used; the longest config has some hundreds.
pub const MAX_VALUES: usize = 100_000;

/// A line that is longer has places by bytes: counting its characters for every key would take the square of its length.
const LONG_LINE: usize = 10_000;

/// A text whose places are asked for often.
pub(crate) struct Lines<'a> {
    name: &'a str,
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub fn new(name: &'a str, text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name, text, starts }
    }

    /// The place of byte `offset`.
    pub fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).filter(|before| before.len() < LONG_LINE);
        let column = before.map_or(offset.saturating_sub(start), |before| before.chars().count()) + 1;
        Place { file: self.name.to_owned(), line, column }
    }
}

/// A text that cannot be read.
pub(crate) fn unreadable_file(name: &str, problem: impl std::fmt::Display, place: Option<Place>) -> JobError {
    let (problem, place) = match place {
        Some(place) => (problem.to_string(), Some(place)),
        None => (format!("{name}: {problem}"), None),
    };
    JobError::of_kind(JobErrorKind::Unreadable, problem).at_place(place)
}

/// The error of a key that a table has twice.
pub(crate) fn said_twice(key: &str, place: Option<Place>, name: &str) -> JobError {
    unreadable_file(name, format!("the key `{}` is there twice", brief_text(key)), place).hint("leave out one of them")
}

/// A text that would flood a message is cut.
pub(crate) fn brief_text(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A scalar as YAML 1.1 and PyYAML read a plain one, but for dates and base 60.
pub(crate) fn read_scalar(text: &str) -> serde_json::Value {
    use serde_json::Value;
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return true.into(),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return false.into(),
        _ => {}
    }
    let digits = text.replace('_', "");
    let begins_as_number = digits.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if begins_as_number && !text.ends_with('_') {
        if let Ok(number) = digits.trim_start_matches('+').parse::<i64>() {
            return number.into();
        }
        if let Some(number) = digits.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
            return Value::Number(number);
        }
    }
    text.into()
}
