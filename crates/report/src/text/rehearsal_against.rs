//! An estimate beside a rehearsal.

use tonnage_core::recording::Comparison;
use tonnage_core::rehearsal::Against;
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint_text};
use super::table::{Align, Table, styled_cell};
use crate::category;
use crate::look::Look;

/// The estimate beside the rehearsal.
pub fn estimate_lines(against: &Against, look: &Look) -> String {
    let columns =
        [("", Align::Left), ("estimated", Align::Right), ("rehearsed", Align::Right), ("difference", Align::Right)];
    let mut table = Table::new(&columns);
    let estimate = &against.estimate;
    let mut row = |name: &str, estimated: u64, rehearsed: u64| {
        let sign = if estimated < rehearsed { "-" } else { "+" };
        let difference = format!("{sign}{}", Bytes(estimated.abs_diff(rehearsed)));
        let (estimated, rehearsed) = (Bytes(estimated).to_string(), Bytes(rehearsed).to_string());
        table.row(vec![name.into(), estimated.into(), rehearsed.into(), styled_cell(difference, DIM)]);
    };
    row("peak allocated", estimate.peak_allocated_bytes, against.rehearsed.0);
    row("peak reserved", estimate.peak_reserved_bytes, against.rehearsed.1);
    for category in &against.by_category {
        let name = category.category.map_or("all else", |category| category::shown_as(category).title);
        row(name, category.estimated, category.rehearsed);
    }
    let comparison = against.comparison.as_ref().map_or_else(|| NO_TRACES.to_owned(), trace_line);
    format!("\n{}\n{}\n{comparison}", paint_text(BOLD, "estimate against rehearsal"), table.render(look))
}

/// Where there is no recording, or one without phases.
const NO_TRACES: &str =
    "traces: not compared, as there is none with phases; `tonnage trace compare` takes one without\n";

/// Where the two traces part; operators have other names on the two sides, so that no table of them is shown.
fn trace_line(comparison: &Comparison) -> String {
    let count = comparison.equal_allocations;
    match &comparison.first {
        None => format!("traces: all {count} allocations above 1 MiB and their lifetimes are equal\n"),
        Some(first) => format!("traces: first difference after {count} equal allocations above 1 MiB\n{first}"),
    }
}
