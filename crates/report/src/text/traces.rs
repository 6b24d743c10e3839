//! Replays and comparisons of traces.

use tonnage_core::alloc::{ReplayOom, Replayed};
use tonnage_core::recording::Comparison;
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::look::Look;

/// Most rows of a table of differences.
const ROWS: usize = 20;

/// A replay as it is shown.
pub struct ReplayView<'a> {
    /// Labels of the phases.
    pub labels: &'a [String],
    pub replayed: &'a Replayed,
    /// Where memory ran out.
    pub oom: Option<&'a ReplayOom>,
    /// How often the cache was flushed.
    pub retries: u64,
}

/// The screen of a replay.
pub fn replay_screen(view: &ReplayView<'_>, look: &Look) -> String {
    let columns = [("phase", Align::Left), ("peak allocated", Align::Right), ("peak reserved", Align::Right)];
    let mut table = Table::new(&columns);
    for (label, stats) in view.labels.iter().zip(&view.replayed.phases) {
        let (allocated, reserved) = (Bytes(stats.peak_allocated), Bytes(stats.peak_reserved));
        table.row(vec![label.as_str().into(), allocated.to_string().into(), reserved.to_string().into()]);
    }
    let total = &view.replayed.total;
    let figures = format!(
        "peak {} allocated, {} reserved, {} retries",
        Bytes(total.peak_allocated),
        Bytes(total.peak_reserved),
        view.retries
    );
    let oom = view.oom.map_or_else(String::new, |oom| format!("{oom}\n"));
    format!("{}\n{oom}\n{}", paint_text(BOLD, &wrap_text(&figures, look.width, 2)), table.render(look))
}

/// The screen of a comparison.
pub fn comparison_screen(comparison: &Comparison, look: &Look) -> String {
    let count = comparison.equal_allocations;
    let Some(first) = &comparison.first else {
        let head = paint_text(BOLD, &format!("equal: {count} allocations and their lifetimes"));
        return format!("{head}\n{}", without_phases(comparison));
    };
    let head = paint_text(BOLD, &format!("first difference after {count} equal allocations"));
    format!("{head}\n{}{first}\n{}", without_phases(comparison), group_table(comparison, look))
}

/// What a comparison does not show.
fn without_phases(comparison: &Comparison) -> &'static str {
    if comparison.compares_phases { "" } else { "phases are not compared: the recording has none\n" }
}

fn group_table(comparison: &Comparison, look: &Look) -> String {
    let columns = [
        ("phase", Align::Left),
        ("operator", Align::Left),
        ("predicted", Align::Right),
        ("", Align::Right),
        ("recorded", Align::Right),
        ("", Align::Right),
    ];
    let mut table = Table::new(&columns).flexible(1);
    for group in comparison.groups.iter().take(ROWS) {
        table.row(vec![
            group.phase.as_str().into(),
            group.op.as_str().into(),
            Bytes(group.predicted.1).to_string().into(),
            styled_cell(format!("{} x", group.predicted.0), DIM),
            Bytes(group.recorded.1).to_string().into(),
            styled_cell(format!("{} x", group.recorded.0), DIM),
        ]);
    }
    let left = comparison.groups.len().saturating_sub(ROWS);
    let more = if left > 0 { format!("  {left} more\n") } else { String::new() };
    if comparison.groups.is_empty() { String::new() } else { format!("{}{more}", table.render(look)) }
}
