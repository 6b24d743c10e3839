//! Holds the generic decoder against what was measured of real classes: parameters, ranges, verdicts.
//!
//! Every truth must lie within the stated range, every parameter count must be the class's own, and the worst of each kind
//! must be what the code says it is (`family/generic/measured.rs`). The table is committed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tonnage_core::estimate::{Estimate, Verdict, estimate};
use tonnage_core::family::generic_allowance;
use tonnage_core::job::{Counted, from_case};

use crate::reference;

/// Arguments of `architectures`.
#[derive(clap::Args)]
pub struct Args {
    /// The cases that were measured.
    #[arg(long, default_value = "testdata/architectures/cases.json")]
    cases: PathBuf,
    /// Their measured figures.
    #[arg(long, default_value = "testdata/architectures/truth.json")]
    truth: PathBuf,
    /// The committed table.
    #[arg(long, default_value = "testdata/architectures/table.txt")]
    table: PathBuf,
    /// Fails when the table is not what would be written, and writes nothing.
    #[arg(long)]
    check: bool,
}

/// The worst of a model type or a kind, in percent: of what was allocated, of what was reserved, and of the estimate.
#[derive(Clone, Copy, Default)]
struct Worst {
    jobs: usize,
    allocated: f64,
    reserved: f64,
    of_estimate: f64,
}

impl Worst {
    fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        let farther = |one: f64, two: f64| if two.abs() > one.abs() { two } else { one };
        self.allocated = farther(self.allocated, other.allocated);
        self.reserved = farther(self.reserved, other.reserved);
        self.of_estimate = self.of_estimate.max(other.of_estimate);
    }
}

/// Runs the comparison.
pub fn run(args: &Args) -> Result<()> {
    let truth = reference::read_truth(&args.truth)?;
    let mut types: BTreeMap<String, Worst> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, Worst> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in &reference::read_cases(&args.cases)? {
        let id = reference::case_id(case);
        let measured = truth.get(id).with_context(|| format!("case `{id}` has no measured figures"))?;
        let model_type = case["model"]["family"].as_str().unwrap_or_default();
        let allowance = generic_allowance(model_type).with_context(|| format!("`{model_type}` is not answered"))?;
        let worst = compare_case(id, case, measured, &mut wrong)?;
        types.entry(model_type.to_owned()).or_default().add(&worst);
        kinds.entry(allowance.kind).or_default().add(&worst);
        let stated = allowance.worst_percent;
        if worst.of_estimate > stated {
            wrong.push(format!("{id}: {:.2} % from its estimate; the code says at most {stated} %", worst.of_estimate));
        }
    }
    let table = worst_table(&types, &kinds);
    print!("{table}");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    if !args.check {
        return fs::write(&args.table, table).with_context(|| args.table.display().to_string());
    }
    let written = fs::read_to_string(&args.table).with_context(|| args.table.display().to_string())?;
    ensure!(table == written, "{} is out of date: run `cargo xtask architectures`", args.table.display());
    Ok(())
}

/// One job, with its parameters checked by their count and without.
fn compare_case(id: &str, case: &Value, measured: &Value, wrong: &mut Vec<String>) -> Result<Worst> {
    let figure = |key: &str| measured[key].as_u64().with_context(|| format!("case `{id}` has no `{key}`"));
    let (reserved, parameters) = (figure("peak_reserved_bytes")?, figure("param_count")?);
    let mut job = from_case(case)?;
    let unchecked = estimate(&job)?;
    let adapters = if job.lora.is_some() { unchecked.trainable_count } else { 0 };
    job.model.beside.counted = Some(Counted { parameters: parameters - adapters, who: "transformers counts" });
    let checked = estimate(&job)?;
    if checked.parameter_count != parameters {
        wrong.push(format!("{id}: built with {} parameters, the class has {parameters}", checked.parameter_count));
    }
    for estimate in [&checked, &unchecked] {
        let (low, high) = held_bytes(estimate);
        if reserved < low || reserved > high {
            wrong.push(format!("{id}: {reserved} bytes reserved are not within {low} to {high}"));
        }
    }
    let fits = [&unchecked, &checked].map(|estimate| estimate.verdict == Verdict::Fits);
    // The cases are small and their GPU is large.
    if fits != [false, true] {
        wrong.push(format!("{id}: unchecked and checked, it fits {fits:?}"));
    }
    let percent = |key: &str, estimated: u64| -> Result<f64> {
        let truth = figure(key)? as f64;
        Ok((estimated as f64 - truth) / truth * 100.0)
    };
    Ok(Worst {
        jobs: 1,
        allocated: percent("peak_allocated_bytes", checked.peak_allocated_bytes)?,
        reserved: percent("peak_reserved_bytes", checked.peak_reserved_bytes)?,
        of_estimate: reserved.abs_diff(checked.peak_reserved_bytes) as f64 / checked.peak_reserved_bytes as f64 * 100.0,
    })
}

/// The range of what is reserved: that of the total, without the context.
fn held_bytes(estimate: &Estimate) -> (u64, u64) {
    let (low, high) = (estimate.outside.low, estimate.outside.high);
    (estimate.range.0.saturating_sub(low), estimate.range.1.saturating_sub(high))
}

fn worst_table(types: &BTreeMap<String, Worst>, kinds: &BTreeMap<&str, Worst>) -> String {
    let mut text = String::from("model type            jobs  allocated   reserved  of the estimate\n");
    for (name, worst) in types {
        worst_line(&mut text, name, worst);
    }
    text.push_str("\nkind\n");
    for (name, worst) in kinds {
        worst_line(&mut text, name, worst);
    }
    text
}

fn worst_line(text: &mut String, name: &str, worst: &Worst) {
    let Worst { jobs, allocated, reserved, of_estimate } = worst;
    let _ = writeln!(text, "{name:<20}  {jobs:>4}  {allocated:>+8.2}%  {reserved:>+8.2}%  {of_estimate:>8.2}%");
}
