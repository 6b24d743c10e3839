//! `tonnage estimate`: what a job needs, and whether it fits.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tonnage_config::Reading;
use tonnage_core::estimate::{Caveat, Deployment, Estimate, Fit};
use tonnage_core::job::guides::LegacyEstimate;
use tonnage_core::job::{JobSource, Resolved};
use tonnage_core::plan::fits_from::fits_from;
use tonnage_core::recording::write_timeline;
use tonnage_report::words::shell_words;
use tonnage_report::{Answer, CompareView, EstimateView, Variant, plot, svg, text};

use super::{compare, json};
use crate::exit::{self, Exit, FailOn};
use crate::failure::Failure;
use crate::job_args::{self, JobArgs};
use crate::job_input::{self, gather_each, read_job, simulate_for_catalog, simulate_resolved};
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage estimate gpt2
  tonnage estimate Qwen/Qwen2.5-7B -b 1 --precision bf16 --gpu a100-80
  tonnage estimate llama-3.1-8b -b 1 --lora-r 16 --gradient-checkpointing
  tonnage estimate ./my-model/config.json --compare fp32,amp-bf16,bf16
  tonnage estimate job.toml --lora-r 16 --gpu 24GiB --json
  tonnage estimate --from sft.yaml --from accelerate.yaml --gpu l4
  tonnage estimate gpt2 --timeline --svg step.svg
  tonnage estimate --model-layer 6 --model-head 6 --model-embd 384 -b 24 -s 512
  tonnage estimate examples/lilwill.toml --legacy --compare fp32,amp-fp16";

/// How many tensors JSON and `--top` show when nobody says.
pub const TOP: usize = 10;
/// Points of the timeline for a picture.
pub const PICTURE_POINTS: usize = 900;
/// Rows of the plot.
pub const PLOT_HEIGHT: usize = 14;

/// Predicts the GPU memory of a job and judges whether it fits
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\n{}", exit::ESTIMATE))]
pub struct EstimateArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// Estimates the job once for each value, side by side: `key=a,b,c`, or words of one key (`fp32,amp-bf16`)
    #[arg(long, value_name = "KEY=A,B", help_heading = "Answer")]
    compare: Vec<String>,

    /// Shows where every value came from, and every phase to the byte
    #[arg(long, help_heading = "Answer")]
    explain: bool,

    /// Shows the N largest modules and tensors at the peak
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = parse_rows, help_heading = "Answer")]
    top: Option<usize>,

    /// Draws how the bytes rise and fall
    #[arg(long, help_heading = "Answer")]
    timeline: bool,

    /// Writes a picture of the timeline by category
    #[arg(long, value_name = "FILE", help_heading = "Answer", hide_short_help = true)]
    svg: Option<PathBuf>,

    /// Writes every allocation and free, one JSON array a line
    #[arg(long, value_name = "FILE", help_heading = "Answer", hide_short_help = true)]
    trace: Option<PathBuf>,

    /// Shows beside it what the formula of a small-GPT trainer's guide says: parameters times constants (small GPTs and GPT-2)
    #[arg(long, help_heading = "Answer", hide_short_help = true)]
    legacy: bool,

    /// What else than `does not fit` ends with exit code 1
    #[arg(long, value_name = "VERDICT", help_heading = "Answer")]
    fail_on: Option<FailOn>,

    /// Prints JSON (see docs/json.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,

    /// Prints nothing: the exit code is the answer
    #[arg(short, long, conflicts_with = "json", help_heading = "Answer")]
    quiet: bool,
}

/// The answer, and what became of the keys of trainers' configs.
#[derive(Serialize)]
pub struct WithConfig<'a> {
    #[serde(flatten)]
    pub view: EstimateView<'a>,
    /// Every key that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// How many rows of a table, as a word.
fn parse_rows(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number of rows: write a whole number, 0 or more"))
}

impl EstimateArgs {
    /// The plain question about a job.
    pub fn of_job(job: JobArgs) -> Self {
        let (compare, top, svg, trace, fail_on) = (Vec::new(), None, None, None, None);
        let (explain, timeline, legacy, json, quiet) = (false, false, false, false, false);
        Self { job, compare, explain, top, timeline, svg, trace, legacy, fail_on, json, quiet }
    }

    /// The same for a gate, which needs a verdict on a GPU where `fail_on` asks for one.
    pub fn gate(job: JobArgs, fail_on: Option<FailOn>) -> Self {
        Self { fail_on, ..Self::of_job(job) }
    }

    /// The answer to the question about a job, with what became of the keys of configs, and nothing printed.
    ///
    /// # Errors
    /// When the job cannot be resolved or simulated.
    pub fn alone(&self) -> Result<(Answer, Option<Reading>), Failure> {
        let (source, reading) = read_job(&self.job)?;
        Ok((self.answer_resolved(source.resolve(&[])?)?, reading))
    }

    /// Answers.
    ///
    /// # Errors
    /// When the job cannot be resolved or simulated, or a file cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let (source, reading) = read_job(&self.job)?;
        if self.compare.is_empty() {
            return self.estimate_one(&source, reading.as_ref(), terminal);
        }
        if let Some(reading) = &reading {
            terminal.tell(&text::config_lines(reading, &terminal.look));
        }
        self.estimate_several(source, terminal)
    }

    fn estimate_one(
        &self,
        source: &JobSource,
        reading: Option<&Reading>,
        terminal: &Terminal,
    ) -> Result<Exit, Failure> {
        let resolved = source.resolve(&[])?;
        let seen = seen_before(source, &resolved)?;
        let answer = self.answer_resolved(resolved)?;
        if self.json {
            let view = EstimateView::new(&answer, self.top.unwrap_or(TOP));
            terminal.print(&json(&WithConfig { view, config: reading.map(Reading::to_json) })?)?;
        } else if !self.quiet {
            terminal.print(&self.screen_of(&answer, terminal))?;
            if let Some(reading) = reading {
                let all = if self.explain { text::config_keys(reading, &terminal.look) } else { String::new() };
                terminal.print(&(all + &text::config_lines(reading, &terminal.look)))?;
            }
            if let Some(seen) = seen {
                terminal.print(&format!("seen before: {seen}; `tonnage run` counts on it\n"))?;
            }
        }
        Ok(exit_code([&answer], self.fail_on))
    }

    fn estimate_several(&self, source: JobSource, terminal: &Terminal) -> Result<Exit, Failure> {
        let variants = compare::read_variants(&self.compare)?;
        let source = gather_each(source, variants.iter().flatten())?;
        let mut failures = Vec::new();
        let mut answers = Vec::new();
        for changes in variants {
            let answer =
                source.resolve(&changes).map_err(Failure::from).and_then(|resolved| self.answer_resolved(resolved));
            let changes = changes.into_iter().map(|change| (change.key, change.value)).collect();
            let answer = answer.map_err(|failure| {
                let problem = failure.problem.clone();
                failures.push(failure);
                problem
            });
            answers.push(Variant { changes, answer });
        }
        // A job that is impossible with every value has another fault.
        if failures.len() == answers.len()
            && let Some(first) = failures.into_iter().next()
        {
            return Err(first);
        }
        if !self.quiet {
            let screen = || {
                let found: Vec<&Answer> = answers.iter().filter_map(|variant| variant.answer.as_ref().ok()).collect();
                let none = !terminal.is_kept() && found.iter().all(|answer| needs_a_plan(answer));
                let plan = found.first().filter(|_| none).map(|answer| way_out(answer, terminal));
                text::compare_table(&answers, &terminal.look) + &plan.unwrap_or_default()
            };
            let document = || json(&CompareView::new(&answers, self.top.unwrap_or(TOP)));
            terminal.show(self.json, document, screen)?;
        }
        Ok(exit_code(answers.iter().filter_map(|variant| variant.answer.as_ref().ok()), self.fail_on))
    }

    /// Simulates once; whatever was asked for is made from that one trace.
    ///
    /// # Errors
    /// When the job cannot be simulated, or a gate has no GPU.
    pub fn answer_resolved(&self, resolved: Resolved) -> Result<Answer, Failure> {
        self.check_gpu_is_named(&resolved)?;
        let names_gpu = resolved.names_gpu();
        let simulated = if names_gpu { simulate_resolved(&resolved)? } else { simulate_for_catalog(&resolved)? };
        let mut estimate = simulated.estimate()?;
        add_input_caveats(&mut estimate, &resolved);
        let usable = names_gpu.then_some(estimate.usable_bytes);
        let drawn = self.timeline || self.svg.is_some();
        let timeline = drawn.then(|| simulated.timeline(PICTURE_POINTS)).transpose()?;
        if let Some(path) = &self.trace {
            write_file(path, &write_timeline(simulated.trace()))?;
        }
        if let (Some(path), Some(timeline)) = (&self.svg, &timeline) {
            write_file(path, &svg::timeline_svg(timeline, &resolved.job, &estimate, usable))?;
        }
        let deployment = Deployment::new(&simulated, estimate.clone())?;
        let legacy = if self.legacy { Some(legacy_estimate(&resolved)?) } else { None };
        let carriers = (!names_gpu).then(|| fits_from(simulated, &estimate));
        Ok(Answer { resolved, estimate, carriers, deployment, timeline, legacy })
    }

    /// A gate must not pass because nobody said what it is held against.
    fn check_gpu_is_named(&self, resolved: &Resolved) -> Result<(), Failure> {
        let asks = match (self.quiet, self.fail_on) {
            _ if resolved.names_gpu() => return Ok(()),
            (true, _) if self.svg.is_none() && self.trace.is_none() => "--quiet",
            (_, Some(_)) => "--fail-on",
            (_, None) => return Ok(()),
        };
        let failure = Failure::bad_input(format!("{asks} answers by the verdict on a GPU, and no GPU is named"));
        Err(failure.with_hint(job_input::NAME_A_GPU))
    }

    fn screen_of(&self, answer: &Answer, terminal: &Terminal) -> String {
        let look = &terminal.look;
        let mut screen = text::estimate_screen(answer, look);
        if let Some(legacy) = &answer.legacy {
            screen.push_str(&text::legacy_lines(legacy, &answer.estimate, look));
        }
        if let Some(top) = self.top {
            screen.push_str(&text::module_table(&answer.estimate, top, look));
            screen.push_str(&text::largest_tensors(&answer.estimate, top, look));
        }
        if let Some(timeline) = answer.timeline.as_ref().filter(|_| self.timeline) {
            screen.push_str(&plot::plot_timeline(timeline, usable_bytes(answer), PLOT_HEIGHT, look));
        }
        if self.explain {
            screen.push_str(&text::explain_screen(answer, look));
        }
        if !(self.explain || self.timeline) {
            screen.push_str(&text::next(answer, look));
        }
        if needs_a_plan(answer) {
            screen.push_str(&way_out(answer, terminal));
        }
        screen
    }
}

/// The line that names the plan of the job as it was typed.
fn way_out(answer: &Answer, terminal: &Terminal) -> String {
    let mut plan = plan_of_the_same_job(std::env::args().skip(1));
    if answer.carriers.is_some() {
        plan.extend(["--gpus".to_owned(), "all".to_owned()]);
    }
    text::way_out(&shell_words(&plan), &terminal.look)
}

/// Bytes of the GPU, if one was named.
pub fn usable_bytes(answer: &Answer) -> Option<u64> {
    answer.carriers.is_none().then_some(answer.estimate.usable_bytes)
}

/// Whether it does not surely fit its GPU, or any where none was named.
fn needs_a_plan(answer: &Answer) -> bool {
    match &answer.carriers {
        Some(carriers) => {
            carriers.unknown.is_empty() && !carriers.carrying.iter().any(|carrier| carrier.verdict.fit == Fit::Fits)
        }
        // Remedies find no bound where there is none.
        None => matches!(answer.deployment.fit(), Fit::Tight | Fit::DoesNotFit),
    }
}

/// Flags of `estimate` alone, and whether a value follows.
const OF_ESTIMATE: [(&str, bool); 11] = [
    ("--compare", true),
    ("--explain", false),
    ("--top", false),
    ("--timeline", false),
    ("--svg", true),
    ("--trace", true),
    ("--legacy", false),
    ("--fail-on", true),
    ("--json", false),
    ("--quiet", false),
    ("-q", false),
];

/// The command that plans the job as it was typed.
fn plan_of_the_same_job(typed: impl Iterator<Item = String>) -> Vec<String> {
    let mut words = vec!["tonnage".to_owned(), "plan".to_owned()];
    let mut typed = typed.skip_while(|word| word != "estimate").skip(1);
    while let Some(word) = typed.next() {
        let name = word.split('=').next().unwrap_or_default();
        match OF_ESTIMATE.iter().find(|(flag, _)| *flag == name) {
            Some((_, true)) if !word.contains('=') => drop(typed.next()),
            Some(_) => (),
            None => words.push(word),
        }
    }
    words
}

/// What the formula of the small-GPT guide says.
fn legacy_estimate(resolved: &Resolved) -> Result<LegacyEstimate, Failure> {
    let model = &resolved.job.model;
    let estimate = LegacyEstimate::of(&resolved.job).map_err(|error| Failure::from(resolved.locate(&error)))?;
    estimate.ok_or_else(|| {
        let failure = Failure::bad_input(format!(
            "`--legacy` is a formula for small GPTs and GPT-2, not for {}",
            model.model_type
        ));
        failure.with_hint("try `tonnage estimate examples/lilwill.toml --legacy`")
    })
}

/// What resolving said.
fn add_input_caveats(estimate: &mut Estimate, resolved: &Resolved) {
    for note in &resolved.notes {
        estimate.add_caveat(Caveat::remark("input", note));
    }
}

/// One that fits is enough; without a GPU, one of the catalog that carries it.
pub fn exit_code<'a>(answers: impl IntoIterator<Item = &'a Answer>, fail_on: Option<FailOn>) -> Exit {
    let fits = |answer: &Answer| match &answer.carriers {
        Some(carriers) => !(carriers.carrying.is_empty() && carriers.unknown.is_empty()),
        None => FailOn::passes(fail_on, answer.deployment.fit()),
    };
    if answers.into_iter().any(fits) { Exit::Done } else { Exit::No }
}

fn write_file(path: &PathBuf, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::about_file(&path.display().to_string(), &error))
}

/// What a probe or a run of such a job showed.
#[cfg(unix)]
fn seen_before(source: &JobSource, resolved: &Resolved) -> Result<Option<String>, Failure> {
    use tonnage_core::record::JobRecord;
    use tonnage_run::{corrections, store::Store};
    let kept = corrections::kept_correction(Store::of_user().root(), &JobRecord::new(source, resolved))?;
    Ok(kept.map(|seen| seen.correction.evidence))
}

/// Nothing: there are no runs on such a system.
#[cfg(not(unix))]
fn seen_before(_source: &JobSource, _resolved: &Resolved) -> Result<Option<String>, Failure> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_of_the_same_job() {
        let typed =
            "estimate gpt2 -b 8 --svg a.svg --gpu=l4 --top=5 --compare seq_len=1,2 --fail-on=tight --set a=b --json";
        let plan = plan_of_the_same_job(typed.split(' ').map(str::to_owned));
        assert_eq!(plan.join(" "), "tonnage plan gpt2 -b 8 --gpu=l4 --set a=b");
    }
}
