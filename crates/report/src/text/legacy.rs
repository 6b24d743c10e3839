//! The figures of the small-GPT guide's formula beside those of the simulated step.

use tonnage_core::estimate::Estimate;
use tonnage_core::job::guides::LegacyEstimate;
use tonnage_core::trace::Category;
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::look::Look;

/// What the formula leaves out or has wrong; the rows say by how much.
const WHY: &str = "the guide's formula takes element counts for bytes in activations and IO tensors, has no logits, \
    no attention scores and no allocator, and halves under autocast what autocast leaves in fp32";

/// Its name, the guide's bytes of it, and the categories that it is in the step.
type Item = (&'static str, fn(&LegacyEstimate) -> u64, &'static [Category]);

/// The guide's items.
const ITEMS: [Item; 5] = [
    ("weights", |legacy| legacy.weights, &[Category::Parameter]),
    (
        "activations, logits",
        |legacy| legacy.activations,
        &[Category::Activation, Category::Recompute, Category::Temporary, Category::OpInternal],
    ),
    ("optimizer state", |legacy| legacy.optimizer_state, &[Category::OptimizerState]),
    ("gradients", |legacy| legacy.gradients, &[Category::Gradient]),
    ("IO tensors", |legacy| legacy.io_tensors, &[Category::Input]),
];

/// The table for `legacy`, beside `estimate`.
pub fn legacy_lines(legacy: &LegacyEstimate, estimate: &Estimate, look: &Look) -> String {
    let columns = [("", Align::Left), ("the guide", Align::Right), ("at the peak", Align::Right)];
    let mut table = Table::new(&columns);
    let mut named = 0;
    for (name, of_guide, categories) in ITEMS {
        let ours = categories.iter().map(|category| estimate.at_peak.by_category[*category as usize]).sum::<u64>();
        named += ours;
        table.row(vec![name.into(), Bytes(of_guide(legacy)).to_string().into(), Bytes(ours).to_string().into()]);
    }
    let rest = estimate.total_bytes.saturating_sub(named);
    table.row(vec!["all else, cache, context".into(), styled_cell("-", DIM), Bytes(rest).to_string().into()]);
    table.row(vec![
        styled_cell("total", BOLD),
        styled_cell(Bytes(legacy.total()).to_string(), BOLD),
        styled_cell(Bytes(estimate.total_bytes).to_string(), BOLD),
    ]);
    let parameters = format!(
        "the small-GPT guide's formula: {:.2}M parameters, {:.2} \"GB\"",
        legacy.parameters as f64 / 1e6,
        Bytes(legacy.total()).gib()
    );
    let parameters = paint_text(DIM, &wrap_text(&parameters, look.width, 2));
    format!("  {parameters}\n{}  {}\n\n", table.render(look), wrap_text(WHY, look.width - 2, 2))
}
