//! What a line of a recording says: a number, a process.

use serde_json::Value;

use crate::absent::Absent;
use crate::host::{Command, Host};
use crate::sample::{ProcessKind, ProcessSample};

/// A number that holds, or one that grows: `{"at": A, "per_second": R, "most": M}`.
pub(super) fn aged_number(value: &Value, age: f64) -> Option<f64> {
    let field = |key: &str| value.get(key).and_then(Value::as_f64);
    let ramp = |at: f64| {
        let grown = at + field("per_second").unwrap_or(0.0) * age.max(0.0);
        grown.min(field("most").unwrap_or(f64::INFINITY)).max(0.0)
    };
    value.as_f64().or_else(|| field("at").map(ramp))
}

pub(super) fn process_row(row: &Value, age: f64) -> Option<ProcessSample> {
    let field = |key: &str| row.get(key).and_then(|value| aged_number(value, age)).ok_or(Absent::NOT_SUPPORTED);
    let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let kind = match row.get("kind").and_then(Value::as_str) {
        Some("graphics") => ProcessKind::Graphics,
        Some("mps") => ProcessKind::Mps,
        _ => ProcessKind::Compute,
    };
    let is = |key: &str| row.get(key) == Some(&Value::Bool(true));
    let command = match text("command") {
        Some(command) => Command::Known(command),
        None if is("gone") => Command::Gone,
        None if is("of_the_host") => Command::OfTheHost,
        None => Command::Unknown,
    };
    let host = Host {
        command,
        user: text("user"),
        container: text("container"),
        job: text("job"),
        rank: field("rank").ok().map(|rank| rank as u32),
        node: text("node"),
        parent: field("parent").ok().map(|parent| parent as u32),
        host_memory: None,
        started: row.get("started").and_then(Value::as_u64),
    };
    Some(ProcessSample {
        pid: field("pid").ok()? as u32,
        kind,
        memory: field("used").map(|used| used as u64),
        sm: field("sm").map(|percent| percent as u32),
        name: text("name").ok_or(Absent::NOT_SUPPORTED),
        host,
    })
}
