//! Signal checks, a file and a line in [`CHECKS`] each: what makes an experiment say less than it seems to. Each gives evidence; what
//! refutes forbids a conclusion about the configurations that it names.

mod apart;
mod compute;
mod floor;
mod held_out;
mod identical;
mod impossible;
mod seeds;
mod unfinished;
mod variance;

pub(crate) use variance::live_share;

use crate::experiment::Experiment;
use tonnage_core::small_sort::SmallSort;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No conclusion about these configurations holds.
    Refutes,
    /// A conclusion must say it.
    Warns,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The check's name.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The configurations that it is about; none is all.
    pub configurations: Vec<String>,
    /// What is wrong, in a sentence.
    pub said: String,
    /// What it was seen by: runs, counts, values.
    pub evidence: Vec<String>,
}

pub struct Check {
    pub name: &'static str,
    /// What it looks for, for the documents.
    pub looks_for: &'static str,
    pub run: fn(&Experiment) -> Vec<Flag>,
}

/// All checks, in the order of reports.
pub const CHECKS: &[&Check] = &[
    &variance::CHECK,
    &floor::CHECK,
    &identical::CONFIGURATIONS,
    &identical::SEEDS,
    &identical::NODES,
    &impossible::CHECK,
    &apart::CHECK,
    &held_out::TRAINED_ON,
    &held_out::MISSING,
    &seeds::CHECK,
    &compute::CHECK,
    &unfinished::CHECK,
];

/// Everything that the checks find, the worst first.
pub fn all_flags(experiment: &Experiment) -> Vec<Flag> {
    let mut flags: Vec<Flag> = CHECKS.iter().flat_map(|check| (check.run)(experiment)).collect();
    flags.small_sort_by_key(|flag| flag.severity);
    flags
}

/// Why nothing may be concluded about `configuration`; of several reasons the first.
pub fn refuted(flags: &[Flag], configuration: &str) -> Option<String> {
    let names =
        |flag: &&Flag| flag.configurations.is_empty() || flag.configurations.iter().any(|name| name == configuration);
    flags
        .iter()
        .filter(|flag| flag.severity == Severity::Refutes)
        .find(names)
        .map(|flag| format!("check `{}`", flag.check))
}

/// At most so many lines of evidence of one kind; how many more there are is said.
const MOST_EVIDENCE: usize = 6;

/// The first lines of evidence, and how many are not shown.
fn first_lines(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MOST_EVIDENCE);
    lines.truncate(MOST_EVIDENCE);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// A number for a sentence: four digits that count.
pub fn number_text(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e7).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = (3 - size.max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
