//! Lists of the models, GPUs and keys that are known.

use tonnage_core::gpu::{CatalogGpu, MigProfile, PriceKind, mig_profiles, prices_of};
use tonnage_core::job::{Key, Kind};
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::answer::grouped_count;
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
pub fn model_table(rows: &[ModelRow<'_>], look: &Look) -> String {
    let columns = [("model", Align::Left), ("parameters", Align::Right), ("type", Align::Left)];
    // Types give way before names, which people copy.
    let mut table = Table::new(&columns).flexible(2).flexible(0);
    for row in rows {
        let mark = if row.simulated { "" } else { "* " };
        table.row(vec![
            row.name.into(),
            styled_cell(grouped_count(row.parameters), BOLD),
            styled_cell(format!("{mark}{}", row.model_type), DIM),
        ]);
    }
    let legend = "* not simulated yet: `tonnage rehearse` runs your own script";
    match rows.iter().all(|row| row.simulated) {
        true => table.render(look),
        false => format!("{}\n{}\n", table.render(look), wrap_text(legend, look.width, 2)),
    }
}

/// The list of GPUs: dense tensor-core rates in fp16 and bf16 and the CUDA cores' in fp32, in TFLOP/s.
pub fn gpu_table(rows: &[GpuRow], look: &Look) -> String {
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
            styled_cell(gpu.id.as_str(), BOLD),
            Bytes(gpu.usable_bytes).to_string().into(),
            styled_cell(format!("{major}.{minor}"), DIM),
            gpu.bandwidth_gb_s.to_string().into(),
            styled_cell(format!("{:.0}", gpu.tflops.fp16), DIM),
            styled_cell(format!("{:.0}", gpu.tflops.fp32), DIM),
            styled_cell(gpu.watts.to_string(), DIM),
            lowest_price(gpu).into(),
            styled_cell(gpu.name.strip_prefix("NVIDIA ").unwrap_or(&gpu.name), DIM),
        ]);
    }
    format!("{}{}", table.render(look), slice_table(rows, look))
}

/// The slices that MIG makes of them, with what each has; boards that are divided alike share a row.
fn slice_table(rows: &[GpuRow], look: &Look) -> String {
    let mut boards: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
    for gpu in rows {
        let slice = |slice: &MigProfile| {
            let size = Bytes(slice.usable_bytes(gpu)).to_string().replace(' ', "\u{a0}");
            format!("{}\u{a0}({size})", slice.name)
        };
        let names: Vec<String> = mig_profiles(gpu).iter().map(slice).collect();
        match boards.iter_mut().find(|(_, others)| *others == names) {
            _ if names.is_empty() => {}
            Some((ids, _)) => ids.push(&gpu.id),
            None => boards.push((vec![&gpu.id], names)),
        }
    }
    let first = rows.iter().find_map(|gpu| Some(format!("{}:{}", gpu.id, mig_profiles(gpu).first()?.name)));
    let Some(first) = first else { return String::new() };
    let title = format!("slices that MIG makes, named as --gpu {first}");
    let mut text = format!("\n{}\n", paint_text(DIM, &wrap_text(&title, look.width, 2)));
    for (ids, names) in &boards {
        let line = format!("{}  {}", paint_text(BOLD, &ids.join(", ")), names.join(", "));
        text.push_str(&format!("  {}\n", wrap_text(&line, look.width.saturating_sub(2), 4).replace('\u{a0}', " ")));
    }
    text
}

/// The lowest price on demand, in dollars for an hour.
fn lowest_price(gpu: &GpuRow) -> String {
    let price = prices_of(&gpu.id, PriceKind::OnDemand).and_then(|prices| prices.lowest());
    price.map_or_else(|| "?".to_owned(), |price| format!("{:.2}", price.dollars_per_gpu_hour))
}

/// The list of keys, with the words they take if `words`.
pub fn key_table(keys: &[&Key], words: bool, look: &Look) -> String {
    keys.iter().map(|key| one_key(key, words, look)).collect()
}

fn one_key(key: &Key, words: bool, look: &Look) -> String {
    let default = format!("default: {}", key.default_text());
    let first = default.split_once(' ').map_or(default.len(), |(word, _)| word.len());
    // Where the rest of the name's line is too short for a word of it, it stands below.
    let default = match key.name.len() + 2 + first <= look.width {
        true => {
            format!("  {}", paint_text(DIM, &wrap_text(&default, look.width.saturating_sub(key.name.len() + 2), 4)))
        }
        false => format!("\n    {}", paint_text(DIM, &wrap_text(&default, look.width, 4))),
    };
    let default = format!("{}{default}", paint_text(BOLD, key.name));
    let mut text = format!("{default}\n  {}\n", wrap_text(key.doc, look.width.saturating_sub(2), 2));
    if words {
        let example = format!("for example: {} = {}", key.name, key.example);
        text.push_str(&format!("  {}\n", paint_text(DIM, &example)));
        if let Kind::Choice(choices) = key.kind {
            let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]).wrapped();
            choices.iter().for_each(|(word, meaning)| table.row(vec![(*word).into(), styled_cell(*meaning, DIM)]));
            text.push_str(&table.render(look));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_give_way_before_names() {
        let name = "stabilityai/stable-diffusion-3-medium-diffusers";
        let row =
            |simulated| ModelRow { name, parameters: 2_030_000_000, model_type: "SD3Transformer2DModel", simulated };
        let look = Look { width: 80, unicode: true };
        let (known, unknown) = (model_table(&[row(true)], &look), model_table(&[row(false)], &look));
        assert!(known.contains(name) && known.contains('…') && !known.contains("tonnage rehearse"), "{known}");
        assert!(unknown.contains(name) && unknown.contains("tonnage rehearse"), "{unknown}");
    }
}
