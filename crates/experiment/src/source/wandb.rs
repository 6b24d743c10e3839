//! What Weights & Biases exports: a run's history as CSV or JSON (`_step`, `_runtime`), and the CSV of a chart, where a column is
//! `RUN - METRIC`. Its own binary format is not read: its reader in the package is gone, and it loses what was not flushed.

use std::io::BufRead;

use super::csv;
use super::json_lines;
use super::lines::{Line, Lines};
use super::{Found, Place, Reader};
use crate::identity::of_path;

/// The history of one run, as JSON lines or a list.
pub(super) const LINES: Reader = Reader {
    name: "W&B's history",
    files: "*.json, *.jsonl with `_step`",
    takes: |name, head| {
        (name.ends_with(".json") || name.ends_with(".jsonl"))
            && is_history(head)
            && (json_lines::READER.takes)(name, head)
    },
    read: |input, place| (json_lines::READER.read)(input, place).map(without_own),
};

/// The CSV of a history or of a chart.
pub(super) const CSV: Reader = Reader {
    name: "W&B's CSV",
    files: "*.csv with `_step`, or of a chart",
    takes: |name, head| name.ends_with(".csv") && (is_history(head) || is_chart(head)),
    read: read_export,
};

fn is_history(head: &[u8]) -> bool {
    memchr::memmem::find(head, b"\"_step\"").is_some()
        || first_line(head).split(|byte| *byte == b',').any(|name| name == b"_step")
}

fn is_chart(head: &[u8]) -> bool {
    let first = first_line(head);
    memchr::memmem::find(first, b" - ").is_some() && (first.starts_with(b"\"Step\",") || first.starts_with(b"Step,"))
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// W&B's own columns are no metrics.
fn without_own(mut found: Found) -> Found {
    found.runs.iter_mut().for_each(|run| run.series.retain(|name, _| !name.starts_with('_')));
    found.runs.retain(|run| !run.series.is_empty());
    found
}

fn read_export(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let is_chart = is_chart(input.fill_buf().map_err(|error| error.to_string())?);
    if is_chart { read_chart(input, place) } else { (csv::READER.read)(input, place).map(without_own) }
}

/// A column a run: its value, and two with the least and the greatest of its group, which are left out.
fn read_chart(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let mut lines = Lines::new(input);
    let (mut cells, mut columns, mut found) = (Vec::new(), Vec::new(), Found::default());
    while let Some(line) = lines.next()? {
        let Line::Bytes(number, bytes) = line else { return Err("a line is longer than a mebibyte".to_owned()) };
        csv::split_cells(&String::from_utf8_lossy(bytes), ',', &mut cells);
        if columns.is_empty() {
            columns = chart_headings(&cells, place, &mut found);
            continue;
        }
        let Ok(step) = cells[0].trim().parse::<f64>() else {
            found.pass_over(number, "the step is no number");
            continue;
        };
        for (cell, column) in cells[1..].iter().zip(&columns) {
            if let (Some((at, metric)), Ok(value)) = (column, cell.trim().parse()) {
                let run: &mut crate::run::Run = &mut found.runs[*at];
                run.push(metric, step, value, number);
            }
        }
    }
    found.runs.retain(|run| !run.series.is_empty());
    if found.runs.is_empty() { Err("no numbers in it".to_owned()) } else { Ok(found) }
}

/// Of every column after the step, the run and its metric.
fn chart_headings(cells: &[String], place: &Place<'_>, found: &mut Found) -> Vec<Option<(usize, String)>> {
    let column = |heading: &String| {
        let (name, metric) = heading.rsplit_once(" - ")?;
        if metric.ends_with("__MIN") || metric.ends_with("__MAX") {
            return None;
        }
        let at = format!("{}#{name}", place.path);
        let index = found.runs.iter().position(|run| run.place == at).unwrap_or_else(|| {
            let (configuration, seed) = of_path(name, name);
            let mut run = place.run();
            run.place = at;
            (run.identity.configuration, run.identity.seed, run.seed_is_known) = (configuration, seed, seed.is_some());
            found.runs.push(run);
            found.runs.len() - 1
        });
        Some((index, metric.to_owned()))
    };
    cells[1..].iter().map(column).collect()
}
