//! Lists of the models, GPUs and keys that are known.

use tonnage_core::gpu::{CatalogGpu, PriceKind, prices_of};
use tonnage_core::spec::{Key, Kind};
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint, wrap};
use super::table::{Align, Table, cell};
use crate::answer::count;
use crate::look::Look;

/// A published model.
pub struct ModelRow<'a> {
    /// The hub name.
    pub name: &'a str,
    /// Parameters, tied ones once.
    pub parameters: u64,
    /// Hugging Face's `model_type`.
    pub model_type: &'a str,
    /// Whether it can be simulated.
    pub simulated: bool,
}

/// A GPU of the catalog.
pub type GpuRow = CatalogGpu;

/// The list of models.
pub fn models(rows: &[ModelRow<'_>], look: &Look) -> String {
    let columns = [("model", Align::Left), ("parameters", Align::Right), ("type", Align::Left), ("", Align::Left)];
    let mut table = Table::new(&columns).flexible(0);
    for row in rows {
        let note = if row.simulated { "" } else { "not simulated yet" };
        table.row(vec![row.name.into(), cell(count(row.parameters), BOLD), cell(row.model_type, DIM), cell(note, DIM)]);
    }
    table.render(look)
}

/// The list of GPUs: dense tensor-core rates in fp16 and bf16 and the CUDA cores' in fp32, in TFLOP/s.
pub fn gpus(rows: &[GpuRow], look: &Look) -> String {
    let columns = [
        ("gpu", Align::Left),
        ("usable", Align::Right),
        ("sm", Align::Right),
        ("GB/s", Align::Right),
        ("half", Align::Right),
        ("fp32", Align::Right),
        ("W", Align::Right),
        ("$/h", Align::Right),
        ("name", Align::Left),
    ];
    let mut table = Table::new(&columns).flexible(8);
    for gpu in rows {
        let (major, minor) = gpu.compute_capability;
        table.row(vec![
            cell(gpu.id.as_str(), BOLD),
            Bytes(gpu.usable_bytes).to_string().into(),
            cell(format!("{major}.{minor}"), DIM),
            gpu.bandwidth_gb_s.to_string().into(),
            cell(format!("{:.0}", gpu.tflops.fp16), DIM),
            cell(format!("{:.0}", gpu.tflops.fp32), DIM),
            cell(gpu.watts.to_string(), DIM),
            lowest_price(gpu).into(),
            cell(gpu.name.strip_prefix("NVIDIA ").unwrap_or(&gpu.name), DIM),
        ]);
    }
    table.render(look)
}

/// The lowest price on demand, in dollars for an hour.
fn lowest_price(gpu: &GpuRow) -> String {
    let price = prices_of(&gpu.id, PriceKind::OnDemand).and_then(|prices| prices.lowest());
    price.map_or_else(|| "?".to_owned(), |price| format!("{:.2}", price.dollars_per_gpu_hour))
}

/// The list of keys, with the words they take if `words`.
pub fn keys(keys: &[&Key], words: bool, look: &Look) -> String {
    keys.iter().map(|key| one_key(key, words, look)).collect()
}

fn one_key(key: &Key, words: bool, look: &Look) -> String {
    let default = wrap(&format!("default: {}", key.default_text()), look.width.saturating_sub(key.name.len() + 2), 4);
    // Where the rest of the name's line is too short for a word of it, it stands below.
    let default = format!("{}  {}", paint(BOLD, key.name), paint(DIM, &default));
    let mut text = format!("{default}\n  {}\n", wrap(key.doc, look.width.saturating_sub(2), 2));
    if words {
        let example = format!("for example: {} = {}", key.name, key.example);
        text.push_str(&format!("  {}\n", paint(DIM, &example)));
        if let Kind::Choice(choices) = key.kind {
            let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]).wrapped();
            choices.iter().for_each(|(word, meaning)| table.row(vec![(*word).into(), cell(*meaning, DIM)]));
            text.push_str(&table.render(look));
        }
    }
    text
}
