//! `tonnage check`: whether a job still takes what a baseline file says, for CI.

mod baseline;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tonnage_core::units::Bytes;
use tonnage_report::{fit_name, text};

use self::baseline::{Baseline, Change, Taken, VERSION};
use super::estimate::{EstimateArgs, exit_code, usable_bytes};
use super::json;
use crate::exit::{self, Exit, FailOn};
use crate::failure::Failure;
use crate::job_args::{JobArgs, SHORT};
use crate::job_input::read_job;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage check job.toml --baseline memory.json --update   # writes what it takes now
  tonnage check job.toml --baseline memory.json            # in CI: fails where it takes more
  tonnage check gpt2 -b 8 --gpu l4 --baseline memory.json --tolerance 2
  tonnage check --from sft.yaml --gpu l4 --baseline memory.json --json

A job stands in the file under --name, or else under its model or file as it was typed.";

/// Says whether a job takes more than a baseline file has for it, and what grew
#[derive(Args)]
#[command(after_help = SHORT, after_long_help = format!("{EXAMPLES}\n\n{}", exit::CHECK))]
pub struct CheckArgs {
    #[command(flatten)]
    job: JobArgs,

    /// What jobs took, JSON
    #[arg(long, value_name = "FILE", help_heading = "Answer")]
    baseline: PathBuf,

    /// The job's name in the baseline [default: its model or file as typed]
    #[arg(long, value_name = "NAME", help_heading = "Answer")]
    name: Option<String>,

    /// By how many percent it may take more
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_percent, help_heading = "Answer")]
    tolerance: f64,

    /// Writes what it takes now into the baseline
    #[arg(long, help_heading = "Answer")]
    update: bool,

    /// What else than `does not fit` ends with exit code 1
    #[arg(long, value_name = "VERDICT", help_heading = "Answer")]
    fail_on: Option<FailOn>,

    /// Prints JSON (see docs/json.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,
}

/// What the check found, as JSON.
#[derive(Serialize)]
struct Checked<'a> {
    version: u32,
    job: &'a str,
    passed: bool,
    /// What the job takes more of than it may.
    grew: Vec<&'static str>,
    /// `does_not_fit` fails; none where no GPU is named.
    verdict: Option<&'static str>,
    fits: bool,
    tolerance_percent: f64,
    notes: Vec<String>,
    changes: Vec<Change>,
    baseline: &'a Taken,
    now: &'a Taken,
}

impl CheckArgs {
    /// Answers.
    ///
    /// # Errors
    /// When the job cannot be estimated, or the baseline cannot be read, written, or does not have it.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let name = self.name_of_job();
        let mut baseline = Baseline::read(&self.baseline, self.update)?;
        let question = EstimateArgs::gate(self.job, self.fail_on);
        let (source, reading) = read_job(&question.job)?;
        if let Some(reading) = &reading {
            terminal.tell(&text::config_lines(reading, &terminal.look));
        }
        let answer = question.answer_resolved(source.resolve(&[])?)?;
        let now = Taken::of_answer(&answer);
        let fits = exit_code([&answer], self.fail_on) == Exit::Done;
        if self.update {
            let before = baseline.jobs.insert(name.clone(), now.clone());
            baseline.write(&self.baseline)?;
            let before = before.filter(|before| *before != now);
            let was = before.map_or(String::new(), |before| format!(", it had {}", Bytes(before.total_bytes)));
            terminal.note(&format!("{}: {name} takes {}{was}", self.baseline.display(), Bytes(now.total_bytes)));
            return Ok(if fits { Exit::Done } else { Exit::No });
        }
        let before = baseline.job(&name, &self.baseline)?;
        let grew = now.grew_beyond(before, self.tolerance);
        let checked = Checked {
            version: VERSION,
            job: &name,
            passed: grew.is_empty() && fits,
            grew,
            verdict: usable_bytes(&answer).map(|_| fit_name(answer.deployment.fit())),
            fits,
            tolerance_percent: self.tolerance,
            notes: now.notes(before),
            changes: now.changes(before),
            baseline: before,
            now: &now,
        };
        terminal.show(self.json, || json(&checked), || screen_of(&checked))?;
        Ok(if checked.passed { Exit::Done } else { Exit::No })
    }

    fn name_of_job(&self) -> String {
        let file = || self.job.from.first().map(|(_, file)| file.clone());
        let typed = self.name.clone().or_else(|| self.job.model.clone()).or_else(file);
        let typed = typed.unwrap_or_else(|| "job".to_owned());
        // The same file is the same job from whatever shell.
        Path::new(&typed).strip_prefix(".").map_or(typed.clone(), |path| path.display().to_string())
    }
}

/// A percentage that is not negative.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| format!("`{text}` is no number"))?;
    let allowed = 0.0..=1000.0;
    if allowed.contains(&number) { Ok(number) } else { Err("a percentage from 0 to 1000".to_owned()) }
}

fn screen_of(checked: &Checked<'_>) -> String {
    let (job, percent) = (checked.job, checked.tolerance_percent);
    let allowed = if percent > 0.0 { format!("{percent} % more than the baseline") } else { "the baseline".to_owned() };
    let total = Bytes(checked.now.total_bytes);
    let mut text = match (checked.grew.as_slice(), checked.changes.is_empty()) {
        ([], true) => format!("✔ {job} takes what the baseline says: {total}\n"),
        ([], false) => format!("✔ {job} takes no more than {allowed}: {total}\n"),
        (grew, _) => format!("✘ {job} takes more than {allowed}: {}\n", grew.join(", ")),
    };
    if !checked.fits {
        let gpu = checked.now.gpu.as_deref().unwrap_or("any GPU of the catalog");
        let verdict = checked.verdict.unwrap_or("does_not_fit").replace('_', " ");
        text.push_str(&format!("✘ {job} on {gpu}: {verdict}\n"));
    }
    if !checked.changes.is_empty() {
        text.push_str(&format!("\n  {:<28}{:>14}{:>14}{:>14}\n", "", "baseline", "now", "change"));
    }
    for change in &checked.changes {
        let [then, now] = change.sizes();
        text.push_str(&format!("  {:<28}{then:>14}{now:>14}{:>14}\n", change.what, change.signed_difference()));
    }
    for note in &checked.notes {
        text.push_str(&format!("\n  {note}\n"));
    }
    text
}
