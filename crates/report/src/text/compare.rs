//! Variants of a job side by side, one row each.

use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint, verdict};
use super::table::{Align, Table, cell};
use crate::answer::{Answer, verdict_name};
use crate::look::Look;

/// The table for `variants`: what each changes, and its answer.
pub fn compare(variants: &[(Vec<(String, String)>, Answer)], look: &Look) -> String {
    let Some((_, first)) = variants.first() else { return String::new() };
    let columns = [
        ("", Align::Left),
        ("total", Align::Right),
        ("", Align::Right),
        ("verdict", Align::Left),
        ("allocated", Align::Right),
        ("reserved", Align::Right),
        ("peak in", Align::Left),
    ];
    let mut table = Table::new(&columns).flexible(0);
    for (changes, answer) in variants {
        let estimate = &answer.estimate;
        table.row(vec![
            changes.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ").into(),
            cell(Bytes(estimate.total_bytes).to_string(), BOLD),
            cell(change(estimate.total_bytes, first.estimate.total_bytes), DIM),
            cell(verdict_name(&estimate.verdict).replace('_', " "), verdict(&estimate.verdict)),
            Bytes(estimate.peak_allocated_bytes).to_string().into(),
            Bytes(estimate.peak_reserved_bytes).to_string().into(),
            cell(estimate.peak_phase.label(), DIM),
        ]);
    }
    format!("{}\n{}\n", head(&variants[0].0, first), table.render(look))
}

/// What all variants share, and what they differ in.
fn head(changes: &[(String, String)], first: &Answer) -> String {
    let job = &first.resolved.job;
    let varies = |key: &str| changes.iter().any(|(changed, _)| changed == key);
    let model = if varies("model") { "models".to_owned() } else { paint(BOLD, &job.model.name) };
    let gpu = if varies("gpu") { String::new() } else { format!(" on {}", job.gpu.name) };
    let keys = changes.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", ");
    format!("{model}{gpu}, by {keys}")
}

/// By how much `bytes` differ from the first.
fn change(bytes: u64, first: u64) -> String {
    if bytes == first {
        return String::new();
    }
    format!("{:+.0} %", (bytes as f64 / first.max(1) as f64 - 1.0) * 100.0)
}
