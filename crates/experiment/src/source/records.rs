//! Tonnage's own records of metrics ([`crate::record`]): JSON lines that say `record`.

use std::io::BufRead;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use super::flat::{Pairs, Scalar, read_object};
use super::lines::{Line, Lines};
use super::words::is_axis;
use super::{Found, Place, Reader};
use crate::record::{FORMAT, Record};
use crate::run::Run;

pub(super) const READER: Reader = Reader {
    name: "Tonnage's records",
    files: "*.jsonl whose first line says `\"record\"`",
    takes: |name, head| {
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        name.ends_with(".jsonl") && memchr::memmem::find(first, b"\"record\"").is_some()
    },
    read: read_records,
};

fn read_records(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let mut found = Found::default();
    let mut run = new_run(place);
    let mut lines = Lines::new(input);
    let mut room = Vec::new();
    while let Some(line) = lines.next()? {
        let (number, bytes) = match line {
            Line::Bytes(number, bytes) => (number, bytes),
            Line::TooLong(number) => {
                found.pass_over(number, "the line is longer than a mebibyte");
                continue;
            }
        };
        if let Some(plain) = PlainPoint::parse_point(bytes) {
            plain.push(number, &mut run);
            continue;
        }
        match read_object(bytes, &mut room) {
            Ok(pairs) if record_kind(&pairs) == Some("point") => read_point(&pairs, number, &mut run, &mut found),
            Ok(_) => match serde_json::from_slice(bytes) {
                Ok(Record::Run(identity)) if identity.format > FORMAT => {
                    return Err(format!("is of format {}, this version reads {FORMAT}", identity.format));
                }
                Ok(record) => take_record(record, &mut run, &mut found, place),
                Err(error) => found.pass_over(number, error.to_string()),
            },
            Err(why) => found.pass_over(number, why),
        }
    }
    found.runs.push(run);
    found.runs.retain(|run| !run.series.is_empty() || !run.items.is_empty() || run.end.is_some());
    match found.runs.is_empty() {
        true => {
            Err(found.first.map_or_else(|| "no points in it".to_owned(), |(line, why)| format!("line {line}: {why}")))
        }
        false => Ok(found),
    }
}

/// A point as this program writes it: known names, plain numbers, no escapes. Other points are read as any object is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainPoint<'a> {
    record: &'a str,
    step: f64,
    seconds: Option<f64>,
    gpu_hours: Option<f64>,
    tokens_generated: Option<f64>,
    tokens_trained: Option<f64>,
    flops: Option<f64>,
    #[serde(borrow)]
    metrics: Metrics<'a>,
}

impl<'a> PlainPoint<'a> {
    fn parse_point(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(|point: &Self| point.record == "point" && point.step.is_finite())
    }

    fn push(&self, line: usize, run: &mut Run) {
        let axes = [
            ("seconds", self.seconds),
            ("gpu_hours", self.gpu_hours),
            ("tokens_generated", self.tokens_generated),
            ("tokens_trained", self.tokens_trained),
            ("flops", self.flops),
        ];
        axes.into_iter().filter_map(|(name, value)| Some((name, value?))).for_each(|(name, value)| {
            run.push(name, self.step, value, line);
        });
        self.metrics.0.iter().for_each(|(name, value)| run.push(name, self.step, *value, line));
    }
}

/// Names and numbers, borrowed from the line.
struct Metrics<'a>(Vec<(&'a str, f64)>);

impl<'de: 'a, 'a> Deserialize<'de> for Metrics<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(&'de str, f64)>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("numbers by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::with_capacity(4);
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Pairs).map(Self)
    }
}

/// A run beside whose records `tonnage run` may have written its own.
fn new_run(place: &Place<'_>) -> Run {
    let mut run = place.run();
    if (place.beside)("run.json").is_some() {
        place.folder().clone_into(&mut run.place);
    }
    run
}

fn record_kind<'p>(pairs: &'p Pairs<'_>) -> Option<&'p str> {
    pairs.iter().find(|(name, _)| name == "record").and_then(|(_, value)| value.text())
}

fn read_point(pairs: &Pairs<'_>, number: usize, run: &mut Run, found: &mut Found) {
    let step = pairs.iter().find(|(name, _)| name == "step").and_then(|(_, value)| value.number());
    let Some(step) = step.filter(|step| step.is_finite()) else {
        return found.pass_over(number, "a point without a step");
    };
    let numbers = pairs.iter().filter_map(|(name, value)| Some((name.as_ref(), Scalar::number(value)?)));
    for (name, value) in numbers {
        if let Some(metric) = name.strip_prefix("metrics/") {
            run.push(metric, step, value, number);
        } else if is_axis(name) {
            run.push(name, step, value, number);
        }
    }
}

fn take_record(record: Record, run: &mut Run, found: &mut Found, place: &Place<'_>) {
    match record {
        Record::Run(identity) => {
            // A file may hold several runs, one after the other.
            if !run.series.is_empty() || !run.items.is_empty() {
                found.runs.push(std::mem::replace(run, new_run(place)));
            }
            let (named, seed) = (run.identity.configuration.clone(), run.identity.seed);
            run.identity = *identity;
            if run.identity.configuration.is_empty() {
                run.identity.configuration = named;
            }
            run.identity.seed = run.identity.seed.or(seed);
            run.seed_is_known = run.identity.seed.is_some();
            if !found.runs.is_empty() {
                run.place = format!("{}#{}", run.place, found.runs.len());
            }
        }
        Record::Item(item) => run.items.push(item),
        Record::Memory(memory) => run.memory = memory,
        Record::End(end) => run.end = Some(end),
        Record::Point(_) => {}
    }
}
