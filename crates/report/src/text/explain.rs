//! Every value of a job with its origin, and every figure with its arithmetic.

use tonnage_core::estimate::{Estimate, shown_bound};
use tonnage_core::job::{Origin, Resolved};
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::answer::Answer;
use crate::look::Look;

/// The reason for [`tonnage_core::estimate::margin`].
const MARGIN: &str = "2 % of what is reserved, at least 64 MiB: kernels and versions nobody measured";
/// What [`Estimate::least_bytes`] is.
const ENOUGH: &str = "total, what is not known and the margin: from here on it fits";
const LEAST: &str = "runs from here on by flushing its cache, with the context at its lowest; below, it does not fit";

/// The explanation of `answer`.
pub fn explain_screen(answer: &Answer, look: &Look) -> String {
    let (values, phases) = (value_table(&answer.resolved, look), phase_table(&answer.estimate, look));
    let (values_title, phases_title) =
        (paint_text(BOLD, "where every value came from"), paint_text(BOLD, "every phase"));
    format!("{values_title}\n{values}\n{phases_title}\n{phases}\n{}\n", figure_lines(answer, look))
}

/// A terminal that is narrower has no room for three columns.
const WIDE: usize = 100;

fn value_table(resolved: &Resolved, look: &Look) -> String {
    if look.width < WIDE {
        return narrow_values(resolved, look);
    }
    let mut table =
        Table::new(&[("key", Align::Left), ("value", Align::Left), ("origin", Align::Left)]).wrapped().flexible(1);
    for value in &resolved.provenance {
        let style = if matches!(value.origin, Origin::Default(_)) { DIM } else { BOLD };
        table.row(vec![
            value.key.as_str().into(),
            styled_cell(value.value.as_str(), style),
            styled_cell(value.origin.to_string(), DIM),
        ]);
    }
    table.render(look)
}

/// The same, with origins that go on below over the whole width.
fn narrow_values(resolved: &Resolved, look: &Look) -> String {
    let longest = resolved.provenance.iter().map(|value| value.key.len()).max().unwrap_or(0).min(look.width / 2);
    let mut text = String::new();
    for value in &resolved.provenance {
        let style = if matches!(value.origin, Origin::Default(_)) { DIM } else { BOLD };
        let padding = " ".repeat(longest.saturating_sub(value.key.len()));
        let line = format!(
            "{}{padding}  {}  {}",
            value.key,
            paint_text(style, &value.value),
            paint_text(DIM, &value.origin.to_string())
        );
        text.push_str(&format!("  {}\n", wrap_text(&line, look.width.saturating_sub(2), 6)));
    }
    text
}

fn phase_table(estimate: &Estimate, look: &Look) -> String {
    let columns = [
        ("phase", Align::Left),
        ("peak allocated", Align::Right),
        ("bytes", Align::Right),
        ("peak reserved", Align::Right),
        ("bytes", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for peak in &estimate.peak_per_phase {
        let style = if peak.phase == estimate.peak_phase { BOLD } else { anstyle::Style::new() };
        table.row(vec![
            styled_cell(peak.phase.label(), style),
            styled_cell(Bytes(peak.allocated).to_string(), style),
            styled_cell(peak.allocated.to_string(), DIM),
            Bytes(peak.reserved).to_string().into(),
            styled_cell(peak.reserved.to_string(), DIM),
        ]);
    }
    table.render(look)
}

fn figure_lines(answer: &Answer, look: &Look) -> String {
    let estimate = &answer.estimate;
    let mut table =
        Table::new(&[("figure", Align::Left), ("", Align::Right), ("bytes", Align::Right), ("", Align::Left)])
            .wrapped();
    let at_peak = &estimate.at_peak;
    let rows = [
        ("after loading", estimate.after_load_bytes, "allocated"),
        ("between steps", estimate.steady_state_bytes, "allocated after the last step"),
        ("peak of requests", estimate.rounded512_peak_bytes, "each rounded up to 512 bytes"),
        ("peak allocated", estimate.peak_allocated_bytes, "torch.cuda.max_memory_allocated()"),
        ("  unsplit remainders", at_peak.unsplit_bytes, "of blocks too close to their request to split"),
        ("peak reserved", estimate.peak_reserved_bytes, "torch.cuda.max_memory_reserved()"),
        ("  cached, not allocated", estimate.unused_reserved_bytes(), "at the peaks: cache and fragments"),
        ("CUDA context", estimate.outside.high, estimate.outside.source),
        ("total", estimate.total_bytes, "reserved and context"),
        ("  not known", estimate.range.1 - estimate.total_bytes, "what caveats allow for"),
        ("  margin", estimate.margin_bytes, MARGIN),
    ];
    let usable = ("usable", estimate.usable_bytes, "what PyTorch calls the GPU's total");
    let usable = answer.carriers.is_none().then_some(usable);
    let least = estimate.least_bytes.map(|bytes| ("least", bytes, LEAST));
    let engine =
        estimate.engine_bytes().map(|bytes| ("vLLM engine", bytes, "of the total, beside what is then reserved"));
    let enough = shown_bound(estimate.safe_bytes).map(|bytes| ("surely enough", bytes, ENOUGH));
    for (name, bytes, note) in rows.into_iter().chain(enough).chain(usable).chain(least).chain(engine) {
        table.row(vec![
            name.into(),
            Bytes(bytes).to_string().into(),
            styled_cell(bytes.to_string(), DIM),
            styled_cell(note, DIM),
        ]);
    }
    table.render(look)
}
