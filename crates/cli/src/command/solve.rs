//! `tonnage fit --solve KEY`: the largest value of a key that fits each GPU.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use tonnage_core::gpu::Gpu;
use tonnage_core::job::{JobSource, JobSpec, Key, Kind, Origin, Override, Resolved};
use tonnage_core::plan::fit::verdict_on;
use tonnage_core::plan::solve::{Question, Searching, Solution, Unanswered, solve as largest};
use tonnage_core::plan::table::Variant;
use tonnage_report::{SolveAnswer, SolveRow, SolveView, solve_csv, text};

use super::json;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sweep::sweep_items;
use crate::terminal::Terminal;

/// No larger value is tried: no sequence is longer, and no batch larger.
const MOST: u64 = 1 << 20;

/// Answers for each of `variants` and `gpus`.
///
/// # Errors
/// When the key is none of a number of things.
pub fn solve_key(
    key: &str,
    base: Resolved,
    gpus: Vec<Gpu>,
    variants: &[Variant],
    source: &JobSource,
    terminal: &Terminal,
) -> Result<SolveAnswer, Failure> {
    let (name, range) = key_and_range(key)?;
    if variants.iter().flat_map(|variant| &variant.changes).any(|change| change.key == name) {
        return Err(Failure::bad_input(format!("--solve: `{name}` is given a list of values too"))
            .with_hint("leave one of both out"));
    }
    let places: Vec<(usize, usize)> =
        (0..variants.len()).flat_map(|variant| (0..gpus.len()).map(move |gpu| (variant, gpu))).collect();
    let found = sweep_items(&places, terminal, |(variant, gpu)| {
        let searching = Searching::one_of(places.len());
        on_gpu(&name, (&range, &searching), &variants[*variant].changes, &gpus[*gpu], source)
    });
    let mut found = found.into_iter();
    let row = |variant: &Variant| SolveRow {
        changes: variant.changes.iter().map(|change| (change.key.clone(), change.value.clone())).collect(),
        cells: found.by_ref().take(gpus.len()).collect(),
    };
    let rows: Vec<SolveRow> = variants.iter().map(row).collect();
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    if let (false, Some(Err(problem))) = (cells.clone().any(Result::is_ok), cells.next()) {
        return Err(Failure::bad_input(problem.clone()));
    }
    Ok(SolveAnswer { job: base.job, key: name, gpus, rows })
}

/// Prints the answer, or writes it.
///
/// # Errors
/// When it cannot be written.
pub fn show_solved(
    answer: &SolveAnswer,
    csv: Option<&Path>,
    as_json: bool,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    if let Some(path) = csv {
        fs::write(path, solve_csv(answer)).map_err(|error| Failure::about_file(&path.display().to_string(), &error))?;
    }
    terminal.show(as_json, || json(&SolveView::new(answer)), || text::solve_screen(answer, &terminal.look))?;
    Ok(if answer.fits() { Exit::Done } else { Exit::No })
}

/// The key and the values that it takes; a short name stands for the only key that ends in it.
fn key_and_range(key: &str) -> Result<(String, RangeInclusive<u64>), Failure> {
    let written = key.trim().trim_start_matches('-').replace('-', "_");
    if let Some(field) = written.strip_prefix("model.").filter(|field| !field.is_empty()) {
        return Ok((format!("model.{field}"), 1..=MOST));
    }
    let is_called = |key: &&Key| key.name == written || key.name.replace('.', "_") == written;
    let ends = |key: &&Key| key.name.rsplit('.').next() == Some(written.as_str());
    let known = tonnage_core::job::KEYS;
    let found = known.iter().find(is_called).or_else(|| known.iter().find(ends));
    let hint = "name a number of which more needs more memory: seq_len, micro_batch_size, lora.r, grpo.num_generations, \
                grpo.completion_len, swarm.nodes, model.num_hidden_layers";
    match found.map(|key| (key.name, key.kind)) {
        Some((name, Kind::Size { min, max })) => Ok((name.to_owned(), min.max(1)..=max.min(MOST))),
        Some((name, _)) => Err(Failure::bad_input(format!("--solve: `{name}` is no whole number")).with_hint(hint)),
        None => Err(Failure::bad_input(format!("--solve: there is no key `{key}`")).with_hint(hint)),
    }
}

fn on_gpu(
    key: &str,
    (range, searching): (&RangeInclusive<u64>, &Searching),
    changes: &[Override],
    gpu: &Gpu,
    source: &JobSource,
) -> Result<Solution, String> {
    let with = |value: u64| -> Result<JobSpec, String> {
        let change = Override::new(key, value, Origin::Flag("--solve".to_owned()));
        let job = source.resolve(&[changes, &[change]].concat()).map_err(|error| error.problem)?.job;
        Ok(JobSpec { gpu: gpu.clone(), ..job })
    };
    let own = own_value(key, changes, source)?.unwrap_or(*range.start());
    let check = |value| with(value).map(drop);
    let estimate = |value| with(value).and_then(|job| verdict_on(&job, gpu).map_err(|error| error.to_string()));
    let verdict = |value| searching.try_value(|| estimate(value).map_err(Unanswered::Refused));
    Ok(largest(&Question { range: range.clone(), own, check: &check, verdict: &verdict }))
}

/// What the job says, where it can be had as it is.
fn own_value(key: &str, changes: &[Override], source: &JobSource) -> Result<Option<u64>, String> {
    let resolved = source.resolve(changes).map_err(|error| error.problem)?;
    let said = resolved.provenance.iter().find(|value| value.key == key);
    Ok(said.and_then(|value| value.value.parse().ok()))
}
