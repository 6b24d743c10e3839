//! The report in a terminal: tables that fit, curves as rows of blocks, intervals as strips.

use anstyle::{AnsiColor, Style};
use tonnage_report::Look;
use tonnage_report::text::{Align, Table as Columns, wrap_text};

use crate::check::{Flag, Severity, number_text};
use crate::document::{Block, Document, Table};
use crate::figure::{Figure, Mark};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WARN: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
/// Rows of one table; the rest is in the page and the CSV.
const MOST_ROWS: usize = 40;

/// The report for a terminal that looks so. Colours are always written.
pub fn text(document: &Document, look: &Look) -> String {
    let mut text = format!("{}\n", paint_text(BOLD, &document.title));
    for block in &document.blocks {
        match block {
            Block::Heading(title) => text.push_str(&format!("\n{}\n", paint_text(BOLD, title))),
            Block::Text(words) => text.push_str(&format!("  {}\n", wrap_text(words, look.width, 2))),
            Block::List(points) => points.iter().for_each(|point| {
                text.push_str(&format!("  {} {}\n", pick_symbol(look, "•", "-"), wrap_text(point, look.width, 4)))
            }),
            Block::Flags(flags) => text.push_str(&check_lines(flags, look)),
            Block::Table(table) => text.push_str(&table_lines(table, look)),
            Block::Figure(figure) => text.push_str(&figure_lines(figure, look)),
            Block::Verbatim(lines) => lines.lines().take(200).for_each(|line| text.push_str(&format!("    {line}\n"))),
        }
    }
    text
}

fn paint_text(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn pick_symbol<'a>(look: &Look, unicode: &'a str, ascii: &'a str) -> &'a str {
    if look.unicode { unicode } else { ascii }
}

fn check_lines(flags: &[Flag], look: &Look) -> String {
    if flags.is_empty() {
        return format!("  {}\n", paint_text(GOOD, "none of the checks found anything"));
    }
    let mut text = String::new();
    for flag in flags {
        let (style, mark) = match flag.severity {
            Severity::Refutes => (BAD, pick_symbol(look, "✗", "X")),
            Severity::Warns => (WARN, "!"),
        };
        let said = wrap_text(&flag.said, look.width, 4);
        text.push_str(&format!("  {} {}\n    {said}\n", paint_text(style, mark), paint_text(style, flag.check)));
        for line in &flag.evidence {
            text.push_str(&format!("      {}\n", paint_text(DIM, &wrap_text(line, look.width, 8))));
        }
    }
    text
}

fn table_lines(table: &Table, look: &Look) -> String {
    let mut text = format!("  {}\n", paint_text(DIM, &wrap_text(&table.title, look.width, 2)));
    if table.is_long {
        text.push_str(&format!("  {} rows, in the page (--html) and in the CSV (--csv)\n", table.rows.len()));
        return text;
    }
    let is_number = |column: usize| table.rows.iter().any(|row| row[column].value.is_some());
    let headings: Vec<(&str, Align)> = table
        .columns
        .iter()
        .enumerate()
        .map(|(column, name)| (*name, if is_number(column) { Align::Right } else { Align::Left }))
        .collect();
    let mut columns = Columns::new(&headings).wrapped();
    for row in table.rows.iter().take(MOST_ROWS) {
        columns.row(row.iter().map(|cell| one_line(&cell.text).into()).collect());
    }
    text.push_str(&columns.render(look));
    if table.rows.len() > MOST_ROWS {
        text.push_str(&format!("  and {} more\n", table.rows.len() - MOST_ROWS));
    }
    if !table.note.is_empty() {
        text.push_str(&format!("  {}\n", paint_text(DIM, &wrap_text(&table.note, look.width, 2))));
    }
    text
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}

fn figure_lines(figure: &Figure, look: &Look) -> String {
    let lines = if figure.rows.is_empty() { spark_lines(figure, look) } else { strip_lines(figure, look) };
    if lines.is_empty() {
        String::new()
    } else {
        format!("  {}\n{lines}", paint_text(DIM, &wrap_text(&figure.title, look.width, 2)))
    }
}

/// A name in so many columns.
fn padded_name(name: &str, width: usize, look: &Look) -> String {
    let name = one_line(name);
    let cut = if name.chars().count() > width {
        name.chars().take(width - 1).chain(pick_symbol(look, "…", "~").chars()).collect()
    } else {
        name
    };
    format!("{cut:<width$}")
}

fn widest_name(names: &[String]) -> usize {
    names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(4, 24)
}

type Points = Vec<(f64, f64)>;

/// A row of blocks for every series that is a line.
fn spark_lines(figure: &Figure, look: &Look) -> String {
    let lines: Vec<(usize, Points)> = (0..figure.series.len())
        .filter_map(|series| Some((series, line_points(figure, series).or_else(|| bar_points(figure, series))?)))
        .collect();
    let all = || lines.iter().flat_map(|(_, points)| points).filter(|point| point.1.is_finite());
    let ([from, to], [low, high]) = (value_span(all().map(|point| point.0)), value_span(all().map(|point| point.1)));
    if !(high >= low && to > from) {
        return String::new();
    }
    let name = widest_name(&figure.series);
    let columns = look.width.saturating_sub(name + 32).clamp(16, 60);
    let mut text = String::new();
    for (series, points) in &lines {
        let drawn = spark_line(points, columns, [from, to], [low, high], look);
        let end = |point: Option<&(f64, f64)>| number_text(point.map_or(0.0, |point| point.1));
        let (first, last) = (end(points.first()), end(points.last()));
        text.push_str(&format!("  {}  {drawn}  {first} to {last}\n", padded_name(&figure.series[*series], name, look)));
    }
    let (from, to, low, high) = (number_text(from), number_text(to), number_text(low), number_text(high));
    let scale = format!("{:name$}  {from} to {to} {}; rows from {low} to {high}", "", figure.x);
    text.push_str(&format!("  {}\n", paint_text(DIM, &scale)));
    text
}

/// The line of a series, of several the one on top.
fn line_points(figure: &Figure, series: usize) -> Option<Points> {
    figure.marks.iter().rev().find_map(|mark| match mark {
        Mark::Line { series: of, points, is_thin: false } if *of == series && points.len() > 1 => Some(points.clone()),
        _ => None,
    })
}

/// The heights of a series of bars, over their middles.
fn bar_points(figure: &Figure, series: usize) -> Option<Points> {
    let of = figure.marks.iter().filter_map(|mark| match mark {
        Mark::Bar { series: of, from, to, height } if *of == series => Some((from.midpoint(*to), *height)),
        _ => None,
    });
    Some(of.collect::<Points>()).filter(|bars| bars.len() > 1)
}

/// The least and the greatest.
fn value_span(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)])
}

/// Blocks whose heights are the points'.
fn spark_line(points: &Points, columns: usize, [from, to]: [f64; 2], [low, high]: [f64; 2], look: &Look) -> String {
    let mut heights: Vec<Option<f64>> = vec![None; columns];
    for (x, y) in points.iter().filter(|point| point.1.is_finite()) {
        let column = ((x - from) / (to - from) * (columns - 1) as f64).round() as usize;
        // Of two the one further from the middle of what was drawn: a spike stays.
        let height = ((y - low) / (high - low).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        heights[column] = heights[column].filter(|other| (other - 0.5).abs() > (height - 0.5).abs()).or(Some(height));
    }
    let mut last = ' ';
    let mut block_of = |height: Option<f64>| {
        last = height.map_or(last, |height| block_char(height, look));
        last
    };
    heights.into_iter().map(&mut block_of).collect()
}

fn block_char(height: f64, look: &Look) -> char {
    let blocks = if look.unicode {
        ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        ['_', '.', '-', '~', '=', '+', '*', '#']
    };
    blocks[((height * 8.0) as usize).min(7)]
}

/// A strip for every row: its interval, its mean, its runs.
fn strip_lines(figure: &Figure, look: &Look) -> String {
    let mut values = Vec::new();
    figure.marks.iter().for_each(|mark| match mark {
        Mark::Dots { points, .. } => values.extend(points.iter().map(|point| point.0)),
        Mark::Interval { low, high, .. } => values.extend([*low, *high]),
        _ => {}
    });
    values.retain(|value| value.is_finite());
    let [low, high] = value_span(values.iter().copied());
    if high <= low || values.is_empty() {
        return String::new();
    }
    let name = widest_name(&figure.rows);
    let columns = look.width.saturating_sub(name + 6).clamp(20, 80);
    let place = |value: f64| ((value.clamp(low, high) - low) / (high - low) * (columns - 1) as f64).round() as usize;
    let mut text = String::new();
    for (row, title) in figure.rows.iter().enumerate() {
        let mut strip: Vec<char> = vec![' '; columns];
        for mark in &figure.marks {
            match mark {
                Mark::Interval { y, low, middle, high, .. } if *y == row as f64 => {
                    strip[place(*low)..=place(*high)].fill(if look.unicode { '─' } else { '-' });
                    strip[place(*low)] = if look.unicode { '├' } else { '[' };
                    strip[place(*high)] = if look.unicode { '┤' } else { ']' };
                    strip[place(*middle)] = if look.unicode { '●' } else { 'O' };
                }
                Mark::Dots { points, .. } => {
                    for point in points.iter().filter(|point| point.1 == row as f64 && point.0.is_finite()) {
                        let slot = &mut strip[place(point.0)];
                        if *slot != '●' && *slot != 'O' {
                            *slot = if look.unicode { '○' } else { 'o' };
                        }
                    }
                }
                _ => {}
            }
        }
        let strip: String = strip.into_iter().collect();
        text.push_str(&format!("  {}  {}\n", padded_name(title, name, look), strip.trim_end()));
    }
    let scale = format!(
        "{:name$}  {}{}{}",
        "",
        number_text(low),
        " ".repeat(columns.saturating_sub(number_text(low).len() + number_text(high).len())),
        number_text(high)
    );
    text.push_str(&format!("  {}\n", paint_text(DIM, &scale)));
    text
}
