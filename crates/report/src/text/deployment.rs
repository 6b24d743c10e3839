//! Jobs of several processes, GPUs or models: who is where, and how many a GPU could hold.

use tonnage_core::estimate::{Deployment, Estimate, Fit, GpuLoad, NodeBytes, Room};
use tonnage_core::units::Bytes;

use super::estimate::{bar_width, percent_text};
use super::paint::{BOLD, DIM, fit_style, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::look::Look;

/// The processes and the GPUs; nothing for a single process on a GPU of its own.
pub(super) fn process_table(deployment: &Deployment, is_named: bool, look: &Look) -> String {
    if !deployment.is_spread() {
        return String::new();
    }
    let room = match (is_named, deployment.room.first()) {
        (false, Some(row)) => format!("{}\n", node_line(&row.each, look)),
        _ => room_lines(&deployment.room, look),
    };
    format!("{}\n{room}", gpu_table(deployment, is_named, look))
}

fn gpu_table(deployment: &Deployment, is_named: bool, look: &Look) -> String {
    let columns = [
        ("on", Align::Left),
        ("processes", Align::Left),
        ("total", Align::Right),
        ("usable", Align::Right),
        ("verdict", Align::Left),
    ];
    // What is about a GPU that nobody named is not shown.
    let shown = if is_named { columns.len() } else { columns.len() - 2 };
    let mut table = Table::new(&columns[..shown]).flexible(1);
    for gpu in &deployment.gpus {
        let mut cells = vec![
            load_name(gpu).into(),
            gpu_contents(deployment, gpu).into(),
            styled_cell(Bytes(gpu.total_bytes).to_string(), BOLD),
            styled_cell(Bytes(gpu.usable_bytes).to_string(), DIM),
            styled_cell(fit_word(gpu.fit), fit_style(gpu.fit)),
        ];
        cells.truncate(shown);
        table.row(cells);
    }
    table.render(look)
}

const fn fit_word(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "fits",
        Fit::Tight => "tight",
        Fit::NotKnown => "not known",
        Fit::DoesNotFit => "does not fit",
    }
}

/// `GPU 0`, or `GPU 0-7` for equal ones.
fn load_name(gpu: &GpuLoad) -> String {
    match gpu.count {
        1 => format!("GPU {}", gpu.first),
        count => format!("GPU {}-{} each", gpu.first, gpu.first + count - 1),
    }
}

/// `2 nodes of 20.30 GiB`
fn gpu_contents(deployment: &Deployment, gpu: &GpuLoad) -> String {
    let part = |(process, count): &(usize, u64)| {
        let process = &deployment.processes[*process];
        let plural = if *count == 1 {
            ""
        } else if process.name.ends_with('s') {
            "es"
        } else {
            "s"
        };
        format!("{count} {}{plural} of {}", process.name, Bytes(process.estimate.total_bytes))
    };
    gpu.processes.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// How many processes a GPU could hold, all at once and under leases.
fn room_lines(room: &[Room], look: &Look) -> String {
    if room.is_empty() {
        return String::new();
    }
    let columns = [("training at once", Align::Left), ("fit on a GPU", Align::Right), ("yours need", Align::Right)];
    let mut table = Table::new(&columns);
    for row in room {
        let lease = row.lease.map_or_else(|| "all".to_owned(), |lease| format!("{lease} (a lease)"));
        table.row(vec![
            lease.into(),
            styled_cell(row.processes.to_string(), BOLD),
            Bytes(row.total_bytes).to_string().into(),
        ]);
    }
    format!("{}{}\n", table.render(look), node_line(&room[0].each, look))
}

/// What a node holds, so that the table can be followed.
fn node_line(node: &NodeBytes, look: &Look) -> String {
    let text = format!(
        "A node holds {} while it trains and {} while it waits for the lease; for what fits, {} and {} (with what is not known, \
         and a margin).",
        Bytes(node.training),
        Bytes(node.resting),
        Bytes(node.safe_training),
        Bytes(node.safe_resting)
    );
    format!("  {}\n", paint_text(DIM, &wrap_text(&text, look.width, 2)))
}

/// What is alive at the peak, by model; nothing when there is one.
pub(super) fn model_lines(estimate: &Estimate, look: &Look) -> String {
    let models = &estimate.at_peak.by_model;
    if models.len() < 2 {
        return String::new();
    }
    let total = estimate.peak_allocated_bytes.max(1) as f64;
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Right), ("", Align::Left)]);
    for (model, bytes) in models {
        let share = *bytes as f64 / total;
        table.row(vec![
            (*model).into(),
            Bytes(*bytes).to_string().into(),
            styled_cell(percent_text(share), DIM),
            look.bar(share, bar_width(look)).into(),
        ]);
    }
    format!("  {}\n{}\n", paint_text(DIM, "of it in the modules of"), table.render(look))
}
