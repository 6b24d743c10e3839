//! Tables with a heading: comma, semicolon or tab; quotes as RFC 4180 has them. One run a file, or, with columns for them, one of
//! each configuration and seed; a table of `metric` and `value` is long form.

use std::io::BufRead;

use super::lines::{Line, Lines};
use super::words::{CONFIGURATIONS, SEEDS, axis_of_column, is_clock, is_no_metric, step_column};
use super::{Found, Place, Reader};
use crate::run::Run;

/// More columns than this no table of metrics has.
const MOST_COLUMNS: usize = 4_096;

pub(super) const READER: Reader = Reader {
    name: "CSV",
    files: "*.csv, *.tsv",
    takes: |name, _| name.ends_with(".csv") || name.ends_with(".tsv"),
    read: read_csv,
};

fn read_csv(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let mut lines = Lines::new(input);
    let Some(Line::Bytes(_, heading)) = lines.next()? else { return Err("is empty".to_owned()) };
    let heading = String::from_utf8_lossy(heading.strip_prefix(b"\xef\xbb\xbf").unwrap_or(heading)).into_owned();
    let table = Heading::read_heading(&heading)?;
    let (mut found, mut rows) = (Found::default(), 0);
    let mut cells = Vec::new();
    while let Some(line) = lines.next()? {
        let (number, text) = match line {
            Line::Bytes(number, bytes) => (number, std::str::from_utf8(bytes).map_err(|_| number)),
            Line::TooLong(number) => (number, Err(number)),
        };
        let Ok(text) = text else {
            found.pass_over(number, "no UTF-8, or longer than a mebibyte");
            continue;
        };
        split_cells(text, table.separator, &mut cells);
        if cells.len() != table.names.len() {
            found.pass_over(number, format!("{} cells under {} headings", cells.len(), table.names.len()));
            continue;
        }
        table.read_row(number, rows, &cells, place, &mut found);
        rows += 1;
    }
    found.runs.retain(|run| !run.series.is_empty());
    match found.runs.is_empty() {
        true => {
            Err(found.first.map_or_else(|| "no numbers in it".to_owned(), |(line, why)| format!("line {line}: {why}")))
        }
        false => Ok(found),
    }
}

struct Heading {
    separator: char,
    names: Vec<String>,
    step: Option<usize>,
    seed: Option<usize>,
    configuration: Option<usize>,
    /// Long form: the columns of names and of values.
    long: Option<(usize, usize)>,
    has_seconds: bool,
}

impl Heading {
    fn read_heading(line: &str) -> Result<Self, String> {
        let separator = separator_of(line);
        let mut names = Vec::new();
        split_cells(line, separator, &mut names);
        let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
        if names.len() > MOST_COLUMNS {
            return Err(format!("has {} columns; {MOST_COLUMNS} at most are read", names.len()));
        }
        if names.iter().all(|name| name.parse::<f64>().is_ok()) {
            return Err("has no line of headings".to_owned());
        }
        let one_of = |known: &[&str]| names.iter().position(|name| known.contains(&name.to_ascii_lowercase().as_str()));
        let long = one_of(&["metric", "tag", "name"]).zip(one_of(&["value"]));
        let (seed, configuration) = (one_of(SEEDS), one_of(CONFIGURATIONS));
        let step = step_column(names.iter().map(String::as_str));
        let has_seconds = names.iter().any(|name| axis_of_column(name) == Some("seconds"));
        Ok(Self { separator, step, seed, configuration, long, has_seconds, names })
    }

    fn read_row(&self, number: usize, rows: usize, cells: &[String], place: &Place<'_>, found: &mut Found) {
        let step = match self.step.map(|index| cells[index].trim().parse::<f64>()) {
            None => rows as f64,
            Some(Ok(step)) if step.is_finite() => step,
            Some(_) => return found.pass_over(number, "the step is no number"),
        };
        let run = self.run_of_row(cells, place, found);
        if let Some((name, value)) = self.long {
            if let Ok(value) = cells[value].trim().parse() {
                run.push(axis_of_column(&cells[name]).unwrap_or(&cells[name]), step, value, number);
            }
            return;
        }
        for (name, cell) in self.names.iter().zip(cells) {
            let Ok(value) = cell.trim().parse::<f64>() else { continue };
            if let Some(axis) = axis_of_column(name) {
                run.push(axis, step, value, number);
            } else if is_clock(name) && !self.has_seconds {
                run.push("seconds", step, value, number);
            } else if !is_no_metric(name) {
                run.push(name, step, value, number);
            }
        }
    }

    fn run_of_row<'f>(&self, cells: &[String], place: &Place<'_>, found: &'f mut Found) -> &'f mut Run {
        let seed = self.seed.and_then(|index| cells[index].trim().parse::<u64>().ok());
        let configuration = self.configuration.map(|index| cells[index].trim());
        let is_it = |run: &Run| {
            (self.seed.is_none() || run.identity.seed == seed)
                && configuration.is_none_or(|name| run.identity.configuration == name)
        };
        let at = found.runs.iter().rposition(is_it).unwrap_or_else(|| {
            let mut run = place.run();
            if let Some(name) = configuration {
                name.clone_into(&mut run.identity.configuration);
            }
            if self.seed.is_some() {
                (run.identity.seed, run.seed_is_known) = (seed, seed.is_some());
            }
            run.place = format!("{}#{}#{seed:?}", run.place, run.identity.configuration);
            found.runs.push(run);
            found.runs.len() - 1
        });
        &mut found.runs[at]
    }
}

/// The one of `,` `;` and tab that a heading has most of outside quotes.
fn separator_of(line: &str) -> char {
    let count = |separator: char| {
        let mut is_quoted = false;
        line.chars()
            .filter(|c| {
                is_quoted ^= *c == '"';
                !is_quoted && *c == separator
            })
            .count()
    };
    [',', '\t', ';'].into_iter().rev().max_by_key(|separator| count(*separator)).unwrap_or(',')
}

/// The cells of a line; a cell in quotes may hold the separator, and `""` for a quote.
pub(super) fn split_cells(line: &str, separator: char, cells: &mut Vec<String>) {
    cells.clear();
    if !line.contains('"') {
        cells.extend(line.split(separator).map(str::to_owned));
        return;
    }
    let (mut cell, mut is_quoted) = (String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(c) = letters.next() {
        match c {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                cell.push('"');
                letters.next();
            }
            '"' => is_quoted = !is_quoted,
            c if c == separator && !is_quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(name: &str, text: &str) -> Result<Found, String> {
        let place = Place { path: name, top: "top", beside: &|_| None };
        read_csv(&mut text.as_bytes(), &place)
    }

    #[test]
    fn cells_in_quotes_hold_what_they_hold() {
        let mut cells = Vec::new();
        split_cells(r#"a,"b,""c""",,"d""#, ',', &mut cells);
        assert_eq!(cells, ["a", "b,\"c\"", "", "d"]);
    }

    #[test]
    fn a_table_is_one_run_or_several() {
        let found = runs("base_s4.csv", "step;loss;note\n1;2,5;x\n2;0.5;y\n").unwrap();
        assert_eq!((found.runs[0].identity.configuration.as_str(), found.runs[0].identity.seed), ("base", Some(4)));
        assert_eq!(found.runs[0].series["loss"].points().collect::<Vec<_>>(), [(2.0, 0.5)]);
        let found =
            runs("all.csv", "method,seed,step,metric,value\nA,0,1,acc,0.5\nB,0,1,acc,0.25\nA,0,2,acc,0.75\n").unwrap();
        let seen: Vec<_> =
            found.runs.iter().map(|run| (run.identity.configuration.as_str(), run.series["acc"].len())).collect();
        assert_eq!(seen, [("A", 2), ("B", 1)]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let found = runs("a.csv", "step,loss\n1,2\n1,2,3\nx,1\n").unwrap();
        assert_eq!((found.passed_over, found.first), (2, Some((3, "3 cells under 2 headings".to_owned()))));
        assert_eq!(runs("a.csv", "1,2\n3,4\n").err().as_deref(), Some("has no line of headings"));
        assert_eq!(runs("a.csv", "step,note\n1,a\n").err().as_deref(), Some("no numbers in it"));
        assert_eq!(runs("a.csv", "").err().as_deref(), Some("is empty"));
    }
}
