//! Anybody's JSON lines, or one JSON list of such objects: a step, and numbers by name. Columns `seed` and `configuration` (also
//! `config`, `variant`, `method`, `group`) part one file into runs.

use std::io::{BufRead, Read};

use super::flat::{Pairs, read_object};
use super::lines::{Line, Lines};
use super::words::{CONFIGURATIONS, SEEDS, axis_of_column, is_clock, is_no_metric, step_column};
use super::{Found, Place, Reader};
use crate::run::Run;

/// A list in one piece is read whole; beyond this it is none of metrics.
const MOST_BYTES: u64 = 256 << 20;

pub(super) const READER: Reader = Reader {
    name: "JSON lines",
    files: "*.jsonl, *.ndjson, and *.json that is a list of objects",
    takes: |name, head| {
        let begins = head.trim_ascii_start().first();
        (name.ends_with(".jsonl") || name.ends_with(".ndjson")) && begins == Some(&b'{')
            || name.ends_with(".json") && begins == Some(&b'[')
    },
    read: read_json_lines,
};

fn read_json_lines(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let mut table = Rows::new(place);
    if place.file().ends_with(".json") {
        for (index, row) in read_list(input)?.iter().enumerate() {
            table.read_line(index + 1, row.get().as_bytes());
        }
        return table.finish_rows();
    }
    let mut lines = Lines::new(input);
    while let Some(line) = lines.next()? {
        match line {
            Line::Bytes(number, bytes) => table.read_line(number, bytes),
            Line::TooLong(number) => table.found.pass_over(number, "the line is longer than a mebibyte"),
        }
    }
    table.finish_rows()
}

/// The objects of one JSON list.
pub(super) fn read_list(input: &mut dyn BufRead) -> Result<Vec<Box<serde_json::value::RawValue>>, String> {
    let text = read_whole(input)?;
    serde_json::from_slice(&text).or_else(|error| {
        let mut patched = Vec::new();
        let is_mended = super::flat::mend_line(&text, &mut patched);
        if is_mended {
            serde_json::from_slice(&patched).map_err(|error| error.to_string())
        } else {
            Err(error.to_string())
        }
    })
}

/// All bytes of a file that is read in one piece.
pub(super) fn read_whole(input: &mut dyn BufRead) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err("is larger than 256 MiB; write JSON lines, which are read a line at a time".to_owned());
    }
    Ok(bytes)
}

/// Rows that become points of runs.
pub(super) struct Rows<'a> {
    place: &'a Place<'a>,
    /// What is read so far.
    pub found: Found,
    room: Vec<u8>,
    rows: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn new(place: &'a Place<'a>) -> Self {
        Self { place, found: Found::default(), room: Vec::new(), rows: 0 }
    }

    /// Takes a line.
    pub(super) fn read_line(&mut self, number: usize, bytes: &[u8]) {
        let mut room = std::mem::take(&mut self.room);
        match read_object(bytes, &mut room) {
            Ok(pairs) => self.read_row(number, &pairs),
            Err(why) => self.found.pass_over(number, why),
        }
        self.room = room;
    }

    fn read_row(&mut self, number: usize, pairs: &Pairs<'_>) {
        let at = step_column(pairs.iter().map(|(name, _)| name.as_ref())).and_then(|index| pairs[index].1.number());
        let (step, place) = (at.unwrap_or(self.rows as f64), self.place);
        self.rows += 1;
        if !step.is_finite() {
            return self.found.pass_over(number, "the step is no number");
        }
        let run = self.run_of_row(pairs, place);
        let has_seconds = pairs.iter().any(|(name, _)| axis_of_column(name) == Some("seconds"));
        for (name, value) in pairs {
            let Some(value) = value.number() else { continue };
            if let Some(axis) = axis_of_column(name) {
                run.push(axis, step, value, number);
            } else if is_clock(name) && !has_seconds {
                run.push("seconds", step, value, number);
            } else if !is_no_metric(name) {
                run.push(name, step, value, number);
            }
        }
    }

    /// The run of a row: of its seed and configuration, where it says them.
    fn run_of_row(&mut self, pairs: &Pairs<'_>, place: &Place<'_>) -> &mut Run {
        let named =
            |names: &[&str]| pairs.iter().find(|(key, _)| names.contains(&key.as_ref())).map(|(_, value)| value);
        let seed = named(SEEDS)
            .and_then(super::flat::Scalar::number)
            .filter(|seed| *seed >= 0.0 && seed.fract() == 0.0)
            .map(|seed| seed as u64);
        let configuration = named(CONFIGURATIONS).and_then(|value| value.text());
        let is_it = |run: &Run| {
            (seed.is_none() || run.identity.seed == seed)
                && configuration.is_none_or(|name| run.identity.configuration == name)
        };
        // Rows of one run follow each other.
        let at = self.found.runs.iter().rposition(is_it);
        let at = at.unwrap_or_else(|| {
            let mut run = place.run();
            if let Some(name) = configuration {
                name.clone_into(&mut run.identity.configuration);
            }
            if seed.is_some() {
                (run.identity.seed, run.seed_is_known) = (seed, true);
            }
            if seed.is_some() || configuration.is_some() {
                run.place = format!("{}#{}#{seed:?}", run.place, run.identity.configuration);
            }
            self.found.runs.push(run);
            self.found.runs.len() - 1
        });
        &mut self.found.runs[at]
    }

    /// What was read.
    pub(super) fn finish_rows(mut self) -> Result<Found, String> {
        self.found.runs.retain(|run| !run.series.is_empty());
        if self.found.runs.is_empty() {
            let why = self
                .found
                .first
                .map_or_else(|| "no numbers in it".to_owned(), |(line, why)| format!("line {line}: {why}"));
            return Err(why);
        }
        Ok(self.found)
    }
}
