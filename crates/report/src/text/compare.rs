//! Variants of a job side by side, one row each.

use tonnage_core::job::keys;
use tonnage_core::units::Bytes;

use super::fits_from::smallest_carrier;
use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::table::{Align, Cell, Table, styled_cell};
use crate::answer::{Answer, Variant, fit_name};
use crate::look::Look;

/// The table for `variants`: what each changes, and its answer.
pub fn compare_table(variants: &[Variant], look: &Look) -> String {
    let Some((changes, first)) = variants.iter().find_map(|v| Some((&v.changes, v.answer.as_ref().ok()?))) else {
        return String::new();
    };
    let has_legacy = variants.iter().any(|v| v.answer.as_ref().is_ok_and(|answer| answer.legacy.is_some()));
    let mut columns = vec![
        ("", Align::Left),
        ("total", Align::Right),
        ("", Align::Right),
        (if first.carriers.is_some() { "fits from" } else { "verdict" }, Align::Left),
        ("allocated", Align::Right),
        ("reserved", Align::Right),
        ("peak in", Align::Left),
    ];
    columns.extend(has_legacy.then_some(("guide's formula", Align::Right)));
    let mut table = Table::new(&columns).flexible(0);
    let mut refused = String::new();
    for variant in variants {
        let name = variant.changes.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
        let answer = match &variant.answer {
            Ok(answer) => answer,
            Err(problem) => {
                table.row(vec![name.clone().into(), "".into(), "".into(), styled_cell("impossible", WARN)]);
                refused.push_str(&format!("{} {name}: {problem}\n", paint_text(WARN, "!")));
                continue;
            }
        };
        let (estimate, total) = (&answer.estimate, total_bytes(answer));
        let mut cells = vec![
            name.into(),
            styled_cell(Bytes(total).to_string(), BOLD),
            styled_cell(change_text(total, total_bytes(first)), DIM),
            verdict_cell(answer),
            Bytes(estimate.peak_allocated_bytes).to_string().into(),
            Bytes(estimate.peak_reserved_bytes).to_string().into(),
            styled_cell(estimate.peak_phase.label(), DIM),
        ];
        cells.extend(
            answer.legacy.as_ref().map(|legacy| styled_cell(format!("{:.2} GiB", Bytes(legacy.total()).gib()), DIM)),
        );
        table.row(cells);
    }
    let refused = if refused.is_empty() { refused } else { format!("{refused}\n") };
    format!("{}\n{}\n{refused}", wrap_text(&variant_head(changes, first), look.width, 2), table.render(look))
}

/// Of a job that names no GPU, the smallest that carries it.
fn verdict_cell(answer: &Answer) -> Cell {
    let on = answer.deployment.fit();
    match answer.carriers.as_ref().map(smallest_carrier) {
        Some((smallest, found)) => styled_cell(smallest, found.map_or(WARN, fit_style)),
        None => styled_cell(fit_name(on).replace('_', " "), fit_style(on)),
    }
}

/// What the fullest GPU carries.
fn total_bytes(answer: &Answer) -> u64 {
    answer.deployment.fullest().map_or(answer.estimate.total_bytes, |gpu| gpu.total_bytes)
}

/// What all variants share, and what they differ in.
fn variant_head(changes: &[(String, String)], first: &Answer) -> String {
    let job = &first.resolved.job;
    let varies = |key: &str| changes.iter().any(|(changed, _)| changed == key);
    let model = if varies(keys::MODEL) { "models".to_owned() } else { paint_text(BOLD, &job.model.name) };
    let gpu = match &first.carriers {
        _ if varies(keys::GPU) => String::new(),
        Some(_) => format!(", sizes as on {}: no GPU was named", job.gpu.name),
        None => format!(" on {}", job.gpu.name),
    };
    let keys = changes.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", ");
    format!("{model}{gpu}, by {keys}")
}

/// By how much `bytes` differ from the first.
fn change_text(bytes: u64, first: u64) -> String {
    if bytes == first {
        return String::new();
    }
    format!("{:+.0} %", (bytes as f64 / first.max(1) as f64 - 1.0) * 100.0)
}
