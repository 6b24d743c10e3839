//! What offloading keeps on the host, beside what the GPU holds.

use tonnage_core::estimate::Estimate;
use tonnage_core::units::Bytes;

use super::estimate::{bar_width, percent_text};
use super::paint::{DIM, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::category;
use crate::look::Look;

/// The host's memory of a process and of a machine; nothing where nothing is offloaded.
pub(super) fn host_table(estimate: &Estimate, world_size: u64, look: &Look) -> String {
    let host = &estimate.host;
    if host.bytes() == 0 {
        return String::new();
    }
    let of_machine = match host.of_machine(world_size) {
        (1, _) => String::new(),
        (ranks, bytes) => format!(", {} for the {ranks} of a machine", Bytes(bytes)),
    };
    let title = format!("on the host, {} a process{of_machine}", Bytes(host.bytes()));
    let total = host.bytes().max(1) as f64;
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Right), ("", Align::Left)]);
    for (category, bytes) in &host.by_category {
        let share = *bytes as f64 / total;
        table.row(vec![
            category::shown_as(*category).title.into(),
            Bytes(*bytes).to_string().into(),
            styled_cell(percent_text(share), DIM),
            styled_cell(look.bar(share, bar_width(look)), category::category_style(*category)),
        ]);
    }
    let kinds = format!(
        "{} pinned, in blocks of powers of two; {} pageable",
        Bytes(host.pinned_bytes),
        Bytes(host.pageable_bytes)
    );
    format!(
        "  {}\n{}  {}\n\n",
        paint_text(DIM, &title),
        table.render(look),
        paint_text(DIM, &wrap_text(&kinds, look.width, 2))
    )
}
