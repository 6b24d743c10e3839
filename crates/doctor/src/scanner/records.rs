//! What was raised, in records of JSON that state it under keys of their own and hold no traceback's text (structlog, ECS,
//! OpenTelemetry, python-json-logger).

use super::Scanner;
use crate::exception::{Exception, Files, Place, exception_stated};
use crate::line::Line;
use crate::prefix::{PACKED, unescape_text};
use crate::text::{find_phrase, has_phrase, integer_after, text_after};
use crate::traceback::{Ended, cut_text};

/// Records of a log's end among which the last one that states an exception is looked for.
const READ: usize = 40;
/// Records after it that may be of a program that ends.
const MOST_AFTER: usize = 2;
/// Bytes of what an exception says that are kept.
const LONGEST_MESSAGE: usize = 400;
/// The keys of an exception's name and of what it says.
const PAIRS: &[(&str, &str)] = &[
    ("\"exc_type\"", "\"exc_value\""),
    ("\"exception.type\"", "\"exception.message\""),
    ("\"exception_type\"", "\"exception_message\""),
    ("\"error.type\"", "\"error.message\""),
    ("\"error_type\"", "\"error_message\""),
    ("\"error_type\"", "\"error\""),
];
/// Keys of both in one: `"exc_info": "KeyError: 'a'"`.
const WHOLE: &[&str] = &["\"exc_info\"", "\"exception\"", "\"error\"", "\"err\"", "\"exc\""];

impl Scanner {
    /// An exception in one of the log's last records, after which no record tells of anything but the end.
    pub(super) fn records_its_end(&mut self, tail: &str) -> bool {
        let records = tail.lines().rev().zip((1..=self.lines).rev()).take(READ);
        let mut after = 0;
        for (text, number) in records.filter(|(text, _)| !text.trim().is_empty()) {
            let Some(record) = record_of(text) else { return false };
            if let Some((name, message)) = raised_in(record) {
                let found = self.kept.findings().iter().any(|finding| finding.last_line >= number);
                if !found {
                    self.recorded(record, number, &name, &message);
                }
                return !found;
            }
            after += 1;
            if after > MOST_AFTER && !is_grave(record) {
                return false;
            }
        }
        false
    }

    fn recorded(&mut self, record: &str, number: u64, name: &str, message: &str) {
        let exception = Exception::new(name, cut_text(message, LONGEST_MESSAGE), &Files::default());
        let rank = ["\"rank\":", "\"global_rank\":"]
            .iter()
            .find_map(|key| integer_after(text_after(record, key)?.trim_start(), ""));
        let line = Line {
            text: format!("{name}: {message}"),
            rank: rank.and_then(|rank| u32::try_from(rank).ok()),
            indent: 0,
            stamp: Line::new(record.as_bytes()).stamp,
        };
        let mut ended = Ended::without_traceback(exception, &line, number);
        ended.place = last_frame(record);
        self.raised(ended, b"");
    }
}

/// A line that is a record, without the text of a traceback, which is read as one.
fn record_of(text: &str) -> Option<&str> {
    let start = text.find('{').filter(|at| *at < 80)?;
    let record = text.get(start..)?.trim_end();
    (record.ends_with('}') && has_phrase(record, "\":") && find_phrase(record, PACKED).is_none()).then_some(record)
}

/// Whether its level is that of an error.
fn is_grave(record: &str) -> bool {
    let level = ["\"level\"", "\"levelname\"", "\"severity\"", "\"log_level\"", "\"log.level\""]
        .iter()
        .find_map(|key| value_of(record, key));
    level.is_some_and(|level| {
        let level = level.to_lowercase();
        ["error", "critical", "fatal", "exception", "alert", "emerg"].contains(&level.as_str())
    })
}

/// The exception that a grave record states.
fn raised_in(record: &str) -> Option<(String, String)> {
    if !is_grave(record) {
        return None;
    }
    let pair = PAIRS.iter().find_map(|(name, message)| {
        let (name, message) = (value_of(record, name)?, value_of(record, message)?);
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c));
        is_name.then_some((name, message))
    });
    let whole = || {
        let text = WHOLE.iter().find_map(|key| value_of(record, key).filter(|value| is_stated(value)))?;
        let (name, message) = exception_stated(&text, true)?;
        Some((name.to_owned(), message.to_owned()))
    };
    pair.or_else(whole)
}

fn is_stated(text: &str) -> bool {
    exception_stated(text, true).is_some_and(|(_, message)| !message.is_empty())
}

/// The string under a key.
fn value_of(record: &str, key: &str) -> Option<String> {
    let value = text_after(record, key)?.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = value.char_indices().find(|(_, character)| {
        let ends = *character == '"' && !is_escaped;
        is_escaped = *character == '\\' && !is_escaped;
        ends
    })?;
    Some(unescape_text(value.get(..end.0)?))
}

/// The innermost frame of structlog's list.
fn last_frame(record: &str) -> Option<Place> {
    let frames = text_after(record, "\"frames\"")?;
    // The frames of its causes stand in lists behind.
    let frames = frames.split_once(']').map_or(frames, |(frames, _)| frames);
    let last = frames.rfind("\"filename\"").and_then(|at| frames.get(at..))?;
    let line = integer_after(text_after(last, "\"lineno\":")?.trim_start(), "")?;
    Some(Place {
        file: value_of(last, "\"filename\"")?,
        line,
        function: value_of(last, "\"name\"").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use crate::{FailureCause, Scanner, Source, diagnose};

    fn said(log: &str) -> Option<(String, Option<u32>)> {
        let mut scanner = Scanner::new();
        scanner.feed(log.as_bytes());
        let sources = [Source { scan: scanner.finish(), ..Source::default() }];
        let root = diagnose(&sources).root?;
        match &root.finding.cause {
            FailureCause::Raised(it) => Some((format!("{}: {}", it.name, it.message), root.rank())),
            other => Some((other.class().name().to_owned(), root.rank())),
        }
    }

    const STEP: &str =
        "{\"event\": \"step\", \"level\": \"info\", \"step\": 3, \"timestamp\": \"2026-01-02T03:04:05Z\"}\n";

    #[test]
    fn an_exception_in_the_keys_of_a_record_is_read() {
        let cases = [
            (
                r#"{"event": "run failed", "level": "error", "exc_type": "KeyError", "exc_value": "'ids'", "rank": 3}"#,
                "KeyError: 'ids'",
                Some(3),
            ),
            (
                r#"{"level": "critical", "event": "x", "exception": [{"exc_type": "ValueError", "exc_value": "no \"rows\"", "frames": [{"filename": "a.py", "lineno": 9, "name": "main"}]}]}"#,
                "ValueError: no \"rows\"",
                None,
            ),
            (
                r#"{"levelname": "ERROR", "message": "over", "exc_info": "ValueError: shape"}"#,
                "ValueError: shape",
                None,
            ),
            (
                r#"{"level":"ERROR","message":"over","error_type":"OSError","error":"[Errno 28] No space left on device"}"#,
                "disk_full",
                None,
            ),
        ];
        for (record, expected, rank) in cases {
            assert_eq!(said(&format!("{STEP}{record}\n")), Some((expected.to_owned(), rank)), "{record}");
            let after = STEP.repeat(3);
            assert_eq!(said(&format!("{STEP}{record}\n{after}")), None, "{record}");
        }
        let warned = r#"{"event": "again", "level": "warning", "exc_type": "OSError", "exc_value": "reset"}"#;
        assert_eq!(said(&format!("{STEP}{warned}\n")), None);
    }
}
