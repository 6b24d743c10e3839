//! What a line of a recording says: a number, a process.

use super::told::{Object, Told};
use crate::absent::Absent;
use crate::host::{Command, Host};
use crate::sample::{ProcessKind, ProcessSample};

/// A number that holds, or one that grows: `{"at": A, "per_second": R, "most": M}`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    Absent,
    Holds(f64),
    Grows { at: f64, per_second: f64, most: f64 },
}

impl Amount {
    pub fn of(value: &Told<'_>) -> Self {
        let grows = |ramp: &Object<'_>| {
            let at = ramp.number_at("at")?;
            let (per_second, most) = (ramp.number_at("per_second"), ramp.number_at("most"));
            Some(Self::Grows { at, per_second: per_second.unwrap_or(0.0), most: most.unwrap_or(f64::INFINITY) })
        };
        let holds = value.as_f64().map(Self::Holds);
        holds.or_else(|| value.as_object().and_then(grows)).unwrap_or(Self::Absent)
    }

    /// What it has come to some seconds later.
    pub fn after(self, age: f64) -> Option<f64> {
        match self {
            Self::Absent => None,
            Self::Holds(number) => Some(number),
            Self::Grows { at, per_second, most } => Some((at + per_second * age.max(0.0)).min(most).max(0.0)),
        }
    }
}

pub(super) fn process_row(row: &Told<'_>, age: f64) -> Option<ProcessSample> {
    let row = row.as_object()?;
    let field = |key: &str| row.get(key).and_then(|value| Amount::of(value).after(age)).ok_or(Absent::NOT_SUPPORTED);
    let text = |key: &str| row.text_at(key).map(str::to_owned);
    let kind = match row.text_at("kind") {
        Some("graphics") => ProcessKind::Graphics,
        Some("mps") => ProcessKind::Mps,
        _ => ProcessKind::Compute,
    };
    let is = |key: &str| matches!(row.get(key), Some(Told::Bool(true)));
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
        started: row.get("started").and_then(Told::as_u64),
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
