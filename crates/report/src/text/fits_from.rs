//! The answer of a job that names no GPU: what it needs, and which GPUs of the catalog carry it.

use std::fmt::Write;

use tonnage_core::estimate::{Fit, shown_bound};
use tonnage_core::gpu::{CatalogGpu, catalog};
use tonnage_core::plan::fits_from::{Carrier, Carriers};
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use crate::answer::Answer;
use crate::look::Look;

/// So many sizes are named, the smallest; of more it is only said whether all carry it.
const NAMED: usize = 3;
/// Columns of a terminal in which names go on further to the left.
const NARROW: usize = 60;
/// Columns of `fits from:`.
const LABEL: usize = 11;

/// What the job needs, in place of a verdict.
pub(super) fn fits_headline(answer: &Answer, look: &Look) -> String {
    let total = answer.deployment.fullest().map_or(answer.estimate.total_bytes, |gpu| gpu.total_bytes);
    let line = format!("{}   as on {}: no GPU was named", Bytes(total), answer.resolved.job.gpu.name);
    let painted = line.replacen(&Bytes(total).to_string(), &paint_text(BOLD, &Bytes(total).to_string()), 1);
    format!("{}\n", wrap_text(&painted, look.width, 2))
}

/// The GPUs that carry it, a line for each size of memory.
pub(super) fn carrier_lines(answer: &Answer, carriers: &Carriers, look: &Look) -> String {
    let of = |wanted: Fit| of_fit(carriers.carrying.iter().map(|carrier| (carrier.gpu, carrier.verdict.fit)), wanted);
    if of(Fit::Fits).is_empty() && shown_bound(answer.estimate.safe_bytes).is_none() {
        let unknown = "on which GPU it fits is not known: what is left out or unchecked, below, has no bound";
        return format!("{} {}\n", paint_text(WARN, "!"), wrap_text(unknown, look.width, 2));
    }
    if carriers.untried.is_empty() {
        return listed_gpus(&of(Fit::Fits), &of(Fit::Tight), look);
    }
    let listed =
        [("fits from:", Fit::Fits), ("tight on:", Fit::Tight)].map(|(label, verdict)| match &of(verdict)[..] {
            [] => String::new(),
            gpus => verdict_lines(label, verdict, &by_size(gpus), look),
        });
    listed.concat() + &untried_line(carriers, look)
}

/// That GPUs were not tried, and how one is.
fn untried_line(carriers: &Carriers, look: &Look) -> String {
    let names: Vec<&str> = carriers.untried.iter().map(|gpu| short_id(gpu)).collect();
    let text = format!("not tried, which would take too long: {}; --gpu NAME tries one", names.join(", "));
    format!("{} {}\n", paint_text(WARN, "!"), wrap_text(&text, look.width, 2))
}

/// Of GPUs, smallest memory first, those with this verdict.
pub(super) fn of_fit(gpus: impl Iterator<Item = (&'static CatalogGpu, Fit)>, wanted: Fit) -> Vec<&'static CatalogGpu> {
    gpus.filter(|(_, fit)| *fit == wanted).map(|(gpu, _)| gpu).collect()
}

/// GPUs on which something fits, and those on which it is tight, a line for each size of memory.
pub(super) fn listed_gpus(fitting: &[&'static CatalogGpu], tight: &[&'static CatalogGpu], look: &Look) -> String {
    let mut text = match fitting.is_empty() {
        true => format!("{}\n", wrap_text(&fits_nowhere(), look.width, 2)),
        false => verdict_lines("fits from:", Fit::Fits, &by_size(fitting), look),
    };
    if !tight.is_empty() {
        text.push_str(&verdict_lines("tight on:", Fit::Tight, &by_size(tight), look));
    }
    text
}

/// The GPU for the end of a line or a column of a table: the smallest that carries it, of those that PyTorch's newest builds
/// run on if there are such.
pub(super) fn smallest_carrier(carriers: &Carriers) -> (String, Option<Fit>) {
    let is_new = |carrier: &&Carrier| carrier.gpu.gpu().device().runs_newest_builds();
    let of = |wanted: Fit| {
        let mut fitting = carriers.carrying.iter().filter(|carrier| carrier.verdict.fit == wanted);
        fitting.clone().find(is_new).or_else(|| fitting.next())
    };
    match (of(Fit::Fits), of(Fit::Tight)) {
        (Some(carrier), _) => (short_id(carrier.gpu).to_owned(), Some(Fit::Fits)),
        (None, Some(carrier)) => (format!("tight on {}", short_id(carrier.gpu)), Some(Fit::Tight)),
        (None, None) if !(carriers.untried.is_empty() && carriers.unknown.is_empty()) => ("not known".to_owned(), None),
        (None, None) => ("none".to_owned(), None),
    }
}

/// The name as people say it.
fn short_id(gpu: &CatalogGpu) -> &str {
    let name = gpu.name.trim_start_matches("NVIDIA ");
    name.trim_start_matches("GeForce ")
}

fn fits_nowhere() -> String {
    let largest = catalog().iter().max_by_key(|row| row.usable_bytes);
    let has = |row: &CatalogGpu| format!("; the largest, {}, has {}", short_id(row), Bytes(row.usable_bytes));
    format!("fits none of the {} GPUs of the catalog{}", catalog().len(), largest.map_or_else(String::new, has))
}

/// Nameplate sizes in GB, and the GPUs of each.
fn by_size(gpus: &[&'static CatalogGpu]) -> Vec<(u64, Vec<&'static CatalogGpu>)> {
    let sizes = gpus.chunk_by(|one, other| one.sold_gb == other.sold_gb);
    sizes.map(|gpus| (gpus[0].sold_gb, gpus.to_vec())).collect()
}

fn verdict_lines(label: &str, verdict: Fit, sizes: &[(u64, Vec<&'static CatalogGpu>)], look: &Look) -> String {
    let (named, rest) = sizes.split_at(sizes.len().min(NAMED));
    // Whoever reads "all larger" must be able to take any of them.
    let beyond = |row: &&CatalogGpu| named.last().is_some_and(|(gb, _)| row.sold_gb > *gb);
    let larger = catalog().iter().filter(beyond).count();
    let all = verdict == Fit::Fits && larger > 0 && rest.iter().map(|(_, gpus)| gpus.len()).sum::<usize>() == larger;
    let shown = if all { named } else { sizes };
    let below = if look.width < NARROW { LABEL } else { LABEL + 9 };
    let mut text = String::new();
    for (at, (gb, gpus)) in shown.iter().enumerate() {
        let names: Vec<String> = gpus.iter().map(|gpu| short_id(gpu).replace(' ', "\u{a0}")).collect();
        let label = format!("{:<LABEL$}", if at == 0 { label } else { "" }).replace(' ', "\u{a0}");
        let size = format!("{gb:>4} GB  ").replace(' ', "\u{a0}");
        let line = format!("{}{size}{}", paint_text(fit_style(verdict), &label), names.join(", "));
        let _ = writeln!(text, "{}", wrap_text(&line, look.width, below).replace('\u{a0}', " "));
    }
    if all {
        let line = format!("and all {larger} larger ones of the catalog");
        let _ = writeln!(text, "{:LABEL$}  {}", "", paint_text(DIM, &wrap_text(&line, look.width, LABEL + 2)));
    }
    text
}
