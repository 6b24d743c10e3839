//! The step's timeline in a terminal: a filled curve in eighths of a row, the phases under it, the usable line above.

use anstyle::{AnsiColor, Style};
use tonnage_core::estimate::{PhaseSpan, Timeline};
use tonnage_core::trace::PhaseKind;
use tonnage_core::units::Bytes;

use crate::text::{paint_text, wrap_text};

use crate::look::Look;

/// What stands above the usable line.
const OVER: Style = AnsiColor::Red.on_default();
/// Columns left of the plot, for the scale.
const SCALE: usize = 11;

/// Draws `timeline` in `height` rows, with a line at `usable` bytes if there is such a GPU and that is in sight.
pub fn plot_timeline(timeline: &Timeline, usable: Option<u64>, height: usize, look: &Look) -> String {
    let width = look.width.saturating_sub(SCALE + 1).max(20);
    let columns = column_peaks(timeline, width);
    let peak = columns.iter().copied().max().unwrap_or(0);
    let seen = usable;
    let usable = usable.unwrap_or(u64::MAX);
    let top = if usable <= peak.saturating_mul(2) { peak.max(usable) } else { peak }.max(1);
    let plot = Plot { columns, top, peak, usable, height, look };
    let rows: String = (0..height).rev().map(|row| plot.row_text(row)).collect();
    let of_gpu = seen.map_or_else(String::new, |usable| format!("; {} usable", Bytes(usable)));
    let foot = format!("allocated bytes, event by event{of_gpu}");
    // Below the plot where there is room, else over the whole width.
    let beside = if SCALE + 1 + foot.len() <= look.width { SCALE + 1 } else { 2 };
    let foot = format!("{:beside$}{}\n\n", "", wrap_text(&foot, look.width, beside));
    format!("{rows}{}{foot}", phase_rows(timeline, width, look))
}

/// The highest allocated bytes of each column.
fn column_peaks(timeline: &Timeline, width: usize) -> Vec<u64> {
    let mut columns = vec![0; width];
    for point in &timeline.points {
        let column = point.event * width / timeline.events.max(1);
        columns[column.min(width - 1)] = columns[column.min(width - 1)].max(point.allocated);
    }
    // A column without a point of its own continues the one before.
    for column in 1..width {
        if columns[column] == 0 {
            columns[column] = columns[column - 1];
        }
    }
    columns
}

struct Plot<'a> {
    columns: Vec<u64>,
    top: u64,
    peak: u64,
    usable: u64,
    height: usize,
    look: &'a Look,
}

impl Plot<'_> {
    /// Eighths of a row up to `bytes`.
    fn eighths_of(&self, bytes: u64) -> usize {
        (bytes as f64 / self.top as f64 * (self.height * 8) as f64).round() as usize
    }

    /// The row that a horizontal line at `bytes` stands in.
    fn line_row(&self, bytes: u64) -> usize {
        (self.eighths_of(bytes).max(1) - 1) / 8
    }

    fn row_text(&self, row: usize) -> String {
        let usable_row = self.usable <= self.top && row == self.line_row(self.usable);
        let label = match row {
            _ if usable_row => "usable".to_owned(),
            _ if row == self.line_row(self.peak) => Bytes(self.peak).to_string(),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let line: String = self.columns.iter().map(|bytes| self.glyph_at(*bytes, row, usable_row)).collect();
        let over = self.usable <= self.top && row > self.line_row(self.usable);
        let line = if over { paint_text(OVER, line.trim_end()) } else { line.trim_end().to_owned() };
        format!("{label:>width$} {}{line}\n", self.look.pick("┤", "|"), width = SCALE - 1)
    }

    fn glyph_at(&self, bytes: u64, row: usize, line: bool) -> char {
        let fill = self.eighths_of(bytes).saturating_sub(row * 8).min(8);
        match fill {
            0 if line => self.pick_symbol('╌', '-'),
            0 => ' ',
            _ if !self.look.unicode => '#',
            fill => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][fill - 1],
        }
    }

    fn pick_symbol(&self, unicode: char, ascii: char) -> char {
        if self.look.unicode { unicode } else { ascii }
    }
}

/// A tick where each phase begins, and names where there is room.
fn phase_rows(timeline: &Timeline, width: usize, look: &Look) -> String {
    let mut ticks: Vec<char> = vec![if look.unicode { '─' } else { '-' }; width];
    let mut names: Vec<char> = vec![' '; width];
    let mut free_from = 0;
    for span in &timeline.phases {
        let column = (span.begin * width / timeline.events.max(1)).min(width - 1);
        let end = (span.end * width / timeline.events.max(1)).min(width);
        ticks[column] = if look.unicode { '┴' } else { '+' };
        let name = [long_name(span), short_name(span)].into_iter().find(|name| column + name.len() < end.max(1));
        if let Some(name) = name.filter(|name| !name.is_empty() && column >= free_from) {
            names.splice(column..column + name.len(), name.chars());
            free_from = column + name.len() + 1;
        }
    }
    let line = |characters: Vec<char>| characters.into_iter().collect::<String>();
    let corner = look.pick("└", "+");
    let (ticks, names, steps) = (line(ticks), line(names), line(step_marks(timeline, width)));
    let (names, steps) = (names.trim_end(), steps.trim_end());
    format!("{:SCALE$}{corner}{ticks}\n{:SCALE$} {names}\n{:SCALE$} {steps}\n", "", "", "")
}

/// `step 1` in the middle of each step that has room for it.
fn step_marks(timeline: &Timeline, width: usize) -> Vec<char> {
    let mut names: Vec<char> = vec![' '; width];
    let last = timeline.phases.iter().map(|span| span.phase.step).max().unwrap_or(0);
    for step in 1..=last {
        let spans = || timeline.phases.iter().filter(|span| span.phase.step == step);
        let begin = spans().map(|span| span.begin).min().unwrap_or(0) * width / timeline.events.max(1);
        let end = spans().map(|span| span.end).max().unwrap_or(0) * width / timeline.events.max(1);
        let name = format!("step {step}");
        let column = ((begin + end) / 2).saturating_sub(name.len() / 2);
        if begin + name.len() < end && column + name.len() <= width {
            names.splice(column..column + name.len(), name.chars());
        }
    }
    names
}

fn long_name(span: &PhaseSpan) -> &'static str {
    if span.phase.kind == PhaseKind::End { "" } else { span.phase.kind.name() }
}

fn short_name(span: &PhaseSpan) -> &'static str {
    match span.phase.kind {
        PhaseKind::Forward => "fwd",
        PhaseKind::Backward => "bwd",
        PhaseKind::Optimizer => "opt",
        PhaseKind::Generate => "gen",
        _ => "",
    }
}
