//! Estimates every case of a reference pair and sets the figures beside the measured ones.
//!
//! The table is also a ratchet: the committed one names, for every case, which figures are exact; a run that makes one
//! of them inexact, or an error larger, fails.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use tonnage_core::{estimate, job};

use crate::reference::{self, Figures};

/// Arguments of `accuracy`.
#[derive(clap::Args)]
pub struct Args {
    /// The cases that were measured.
    #[arg(long)]
    cases: PathBuf,
    /// Their measured figures.
    #[arg(long)]
    truth: PathBuf,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// The committed table; fails when a figure got worse.
    #[arg(long)]
    ratchet: Option<PathBuf>,
    /// Write the table to the ratchet file instead of checking it.
    #[arg(long, requires = "ratchet")]
    bless: bool,
}

#[derive(Serialize)]
struct Case {
    id: String,
    /// `None` when the job could not be estimated; the reason is in `error`.
    predicted: Option<Figures>,
    truth: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Report {
    cases: Vec<Case>,
    summary: Summary,
}

/// How many cases are exact in each figure, and how far off the worst is.
#[derive(Serialize)]
struct Summary {
    cases: usize,
    not_estimated: usize,
    rounded512_exact: usize,
    allocated_exact: usize,
    reserved_exact: usize,
    phase_right: usize,
    worst_rounded512_percent: f64,
    worst_allocated_percent: f64,
    worst_reserved_percent: f64,
}

/// Runs the comparison.
pub fn run(args: &Args) -> Result<()> {
    let report = compare_cases(&args.cases, &args.truth)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", accuracy_table(&report));
    }
    match &args.ratchet {
        Some(path) if args.bless => {
            fs::write(path, accuracy_table(&report)).with_context(|| path.display().to_string())
        }
        Some(path) => check_ratchet(&report, path),
        None => Ok(()),
    }
}

fn compare_cases(cases: &Path, truth: &Path) -> Result<Report> {
    let truth = reference::read_truth(truth)?;
    let mut compared = Vec::new();
    for case in &reference::read_cases(cases)? {
        let id = reference::case_id(case);
        let measured = truth.get(id).with_context(|| format!("case `{id}` has no measured figures"))?;
        let truth = Figures::deserialize_from(measured).with_context(|| format!("figures of case `{id}`"))?;
        let (predicted, error) = match predict_case(case) {
            Ok(figures) => (Some(figures), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        compared.push(Case { id: id.to_owned(), predicted, truth, error });
    }
    let summary = summarize_cases(&compared);
    Ok(Report { cases: compared, summary })
}

fn predict_case(case: &Value) -> Result<Figures> {
    let job = job::from_case(case)?;
    let estimate = estimate::estimate(&job)?;
    Ok(Figures {
        rounded512_peak_bytes: Some(estimate.rounded512_peak_bytes),
        peak_allocated_bytes: estimate.peak_allocated_bytes,
        peak_reserved_bytes: estimate.peak_reserved_bytes,
        peak_phase: estimate.peak_phase.label(),
    })
}

impl Figures {
    fn deserialize_from(value: &Value) -> Result<Self> {
        Ok(serde::Deserialize::deserialize(value)?)
    }

    fn sizes(&self) -> [Option<u64>; 3] {
        [self.rounded512_peak_bytes, Some(self.peak_allocated_bytes), Some(self.peak_reserved_bytes)]
    }
}

impl Case {
    /// Signed errors of the three sizes in percent, where they were measured; `None` when there is no estimate.
    fn errors(&self) -> Option<[Option<f64>; 3]> {
        let (predicted, truth) = (self.predicted.as_ref()?.sizes(), self.truth.sizes());
        let percent = |(predicted, truth): (u64, u64)| (predicted as f64 - truth as f64) / truth as f64 * 100.0;
        Some([0, 1, 2].map(|at| predicted[at].zip(truth[at]).map(percent)))
    }

    fn phase_is_right(&self) -> bool {
        self.predicted.as_ref().is_some_and(|predicted| predicted.peak_phase == self.truth.peak_phase)
    }
}

fn summarize_cases(cases: &[Case]) -> Summary {
    let errors: Vec<[Option<f64>; 3]> = cases.iter().filter_map(Case::errors).collect();
    let exact = |at: usize| errors.iter().filter(|error| error[at] == Some(0.0)).count();
    let worst = |at: usize| errors.iter().filter_map(|error| error[at]).map(f64::abs).fold(0.0, f64::max);
    Summary {
        cases: cases.len(),
        not_estimated: cases.len() - errors.len(),
        rounded512_exact: exact(0),
        allocated_exact: exact(1),
        reserved_exact: exact(2),
        phase_right: cases.iter().filter(|case| case.phase_is_right()).count(),
        worst_rounded512_percent: worst(0),
        worst_allocated_percent: worst(1),
        worst_reserved_percent: worst(2),
    }
}

fn accuracy_table(report: &Report) -> String {
    let width = report.cases.iter().map(|case| case.id.len()).max().unwrap_or(4);
    let mut text = format!(
        "{:width$}  {:>13}  {:>9}  {:>13}  {:>9}  {:>13}  {:>9}  phase\n",
        "case", "rounded512", "error", "allocated", "error", "reserved", "error"
    );
    for case in &report.cases {
        text.push_str(&table_row(case, width));
    }
    let s = &report.summary;
    text.push_str(&format!(
        "\n{} cases, {} not estimated\nrounded512: {} exact, worst {:.4} %\nallocated:  {} exact, worst {:.4} %\n\
         reserved:   {} exact, worst {:.4} %\nphase:      {} right\n",
        s.cases,
        s.not_estimated,
        s.rounded512_exact,
        s.worst_rounded512_percent,
        s.allocated_exact,
        s.worst_allocated_percent,
        s.reserved_exact,
        s.worst_reserved_percent,
        s.phase_right
    ));
    text
}

fn table_row(case: &Case, width: usize) -> String {
    let (Some(predicted), Some(errors)) = (&case.predicted, case.errors()) else {
        return format!("{:width$}  {}\n", case.id, case.error.as_deref().unwrap_or("not estimated"));
    };
    let error = |percent: Option<f64>| match percent {
        None => "-".to_owned(),
        Some(0.0) => "exact".to_owned(),
        Some(percent) => format!("{percent:+.4}%"),
    };
    let phase = if case.phase_is_right() {
        predicted.peak_phase.clone()
    } else {
        format!("{} instead of {}", predicted.peak_phase, case.truth.peak_phase)
    };
    let [rounded512, allocated, reserved] = predicted.sizes().map(|size| size.unwrap_or(0));
    format!(
        "{:width$}  {rounded512:>13}  {:>9}  {allocated:>13}  {:>9}  {reserved:>13}  {:>9}  {phase}\n",
        case.id,
        error(errors[0]),
        error(errors[1]),
        error(errors[2])
    )
}

/// Fails when a case of the committed table is missing now or has a larger error than there.
fn check_ratchet(report: &Report, path: &Path) -> Result<()> {
    let committed = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut worse = Vec::new();
    for line in committed.lines().skip(1).take_while(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let Some(case) = report.cases.iter().find(|case| cells.first() == Some(&case.id.as_str())) else {
            worse.push(format!("{line}: no such case any more"));
            continue;
        };
        if let Some(reason) = got_worse(case, &cells) {
            worse.push(format!("{}: {reason}", case.id));
        }
    }
    if worse.is_empty() { Ok(()) } else { bail!("accuracy got worse:\n{}", worse.join("\n")) }
}

fn got_worse(case: &Case, cells: &[&str]) -> Option<String> {
    let committed = [2, 4, 6].map(|at| cells.get(at).and_then(|cell| parse_error(cell)));
    // A case that was not estimated has no figures to lose.
    committed[1]?;
    let Some(errors) = case.errors() else { return Some("no estimate any more".to_owned()) };
    for (at, name) in ["rounded512", "allocated", "reserved"].iter().enumerate() {
        // The committed figure is printed with four decimals.
        let (Some(now), Some(was)) = (errors[at], committed[at]) else { continue };
        if now.abs() > was.abs() + 0.000_051 || (was == 0.0 && now != 0.0) {
            return Some(format!("{name} {now:+.4} % off, was {was:+.4} %"));
        }
    }
    let was_right = !cells.contains(&"instead");
    (was_right && !case.phase_is_right()).then(|| "the phase of the peak is wrong".to_owned())
}

fn parse_error(cell: &str) -> Option<f64> {
    if cell == "exact" { Some(0.0) } else { cell.strip_suffix('%')?.parse().ok() }
}
