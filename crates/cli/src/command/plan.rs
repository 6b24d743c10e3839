//! `tonnage plan`: what a job takes in time and money, what can be done where it needs too much memory, and the cheapest
//! way to run it within a budget and a deadline.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use tonnage_core::estimate::Fit;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::keys::GPU;
use tonnage_core::job::{JobSource, JobSpec, Origin};
use tonnage_core::plan::appraisal::appraise;
use tonnage_core::plan::proposal::{Proposals, consider_remedies};
use tonnage_core::plan::remedy::{Change, overrides};
use tonnage_core::plan::search::{
    Asked, Candidate, Choice, GpuGroup, SearchLimits, can_spread, candidates_on_each, choose_candidate, gpu_groups,
    searched_lists,
};
use tonnage_core::plan::time::{STEPS_OF_A_SAMPLE, Scale};
use tonnage_report::{PlanView, SearchView, text};

use super::json;
use crate::duration;
use crate::exit::{self, Exit, FailOn};
use crate::failure::Failure;
use crate::gpu_input;
use crate::job_args::{self, JobArgs};
use crate::job_input::{job_file_text, on_a_gpu, read_source};
use crate::sweep::sweep_items;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage plan llama-3.1-8b --precision bf16 --gpu a100-80
  tonnage plan examples/sapo-gpt2-swarm.toml --write fits.toml
  tonnage plan examples/llama-8b-ddp.toml --max-steps 5000 --budget 200
  tonnage plan llama-3.2-1b --max-steps 500 --gpus h100,l40s --deadline 2h
  tonnage plan gpt2 --gpu l4 --step-time 0.21 --price 0.40 --max-steps 1000 --json";

/// Time and price of a job, remedies where it needs too much, and the cheapest way within a budget
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\n{}", exit::PLAN))]
pub struct PlanArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// The most that the training may cost, in dollars: searches GPUs, their number and remedies
    #[arg(long, value_name = "DOLLARS", value_parser = duration::parse_dollars, help_heading = "Search")]
    budget: Option<f64>,

    /// The longest that it may take (90m, 24h, 3d): searches as well
    #[arg(long, value_name = "TIME", value_parser = duration::parse_seconds, help_heading = "Search")]
    deadline: Option<f64>,

    /// The GPUs that are searched, by name, `all` of the catalog, or those `priced` in it [default: priced]
    #[arg(long, value_name = "A,B", help_heading = "Search")]
    gpus: Option<String>,

    /// How many GPUs of a kind may be taken
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u64).range(1..=65536), help_heading = "Search")]
    counts: Vec<u64>,

    /// Searches remedies that change the training as well: LoRA, another precision of the weights, shorter rows
    #[arg(long, help_heading = "Search")]
    change_training: bool,

    /// Writes the job file with the remedies in it
    #[arg(long, value_name = "FILE", help_heading = "Answer")]
    write: Option<PathBuf>,

    /// What else than `does not fit` ends with exit code 1
    #[arg(long, value_name = "VERDICT", help_heading = "Answer")]
    fail_on: Option<FailOn>,

    /// Prints JSON (see docs/json.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,
}

impl PlanArgs {
    /// Answers.
    ///
    /// # Errors
    /// When the job cannot be resolved or simulated, or a file cannot be written.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let searches = self.budget.is_some() || self.deadline.is_some() || self.gpus.is_some();
        let source = read_source(&self.job)?;
        let resolved = source.resolve(&[])?;
        // A search brings its own GPUs; what was measured was measured on one.
        let is_measured = Scale::own(&resolved.job) != Scale::Estimated;
        let (source, job) = match searches && !is_measured || resolved.names_gpu() {
            true => (source, resolved.job),
            false => {
                let source = on_a_gpu(source, if searches { "a measured step is of a GPU" } else { ASKS });
                let job = source.resolve(&[]).map_err(|error| hint_at_search(error.into(), searches))?.job;
                (source, job)
            }
        };
        if searches { self.search_values(&source, &job, terminal) } else { self.show_remedies(&source, &job, terminal) }
    }

    fn show_remedies(&self, source: &JobSource, job: &JobSpec, terminal: &Terminal) -> Result<Exit, Failure> {
        let proposals = consider_remedies(job, source)?;
        let changes = proposals.together.as_ref().map(|together| together.changes.as_slice()).unwrap_or_default();
        let with = source.resolve(&overrides(changes, &Origin::Plan))?.job;
        self.write_changes(source, changes, terminal)?;
        let screen = || text::plan_screen(job, &proposals, &with, &terminal.look);
        terminal.show(self.json, || json(&PlanView::new(&proposals, &with)), screen)?;
        let best = best_fit(&proposals);
        Ok(if best.fits() && FailOn::passes(self.fail_on, best) { Exit::Done } else { Exit::No })
    }

    fn search_values(&self, source: &JobSource, job: &JobSpec, terminal: &Terminal) -> Result<Exit, Failure> {
        let limits = SearchLimits { dollars: self.budget, seconds: self.deadline };
        if job.run.length.is_none() {
            terminal.note(&format!(
                "how long the training is was not said: {STEPS_OF_A_SAMPLE} steps are assumed; give --max-steps, \
                 --train-tokens, or --train-rows and --num-train-epochs"
            ));
        }
        let scale = measured_scale(job)?;
        let (gpu_groups, unsearched) = searched_lists(job, self.gpu_groups(job)?);
        let asked = Asked { job, source, scale, changes_training: self.change_training, lists: gpu_groups.len() };
        let found = sweep_items(&gpu_groups, terminal, |of_one_count| candidates_on_each(&asked, of_one_count));
        let mut left_out = if can_spread(job) { unsearched } else { vec![self.not_spread(job)] };
        let (mut candidates, reasons): (Vec<Vec<Candidate>>, Vec<Vec<String>>) =
            found.into_iter().map(|found| (found.candidates, found.left_out)).unzip();
        let mut candidates: Vec<Candidate> = candidates.drain(..).flatten().collect();
        for reason in reasons.into_iter().flatten() {
            if !left_out.contains(&reason) {
                left_out.push(reason);
            }
        }
        let choice = choose_candidate(&mut candidates, &limits);
        let chosen = choice.place().and_then(|at| candidates.get(at));
        let changes = chosen
            .map(|candidate| [candidate.spread.as_slice(), candidate.changes.as_slice()].concat())
            .unwrap_or_default();
        let with = source.resolve(&overrides(&changes, &Origin::Plan))?.job;
        let gpu = chosen.map(|candidate| (GPU, candidate.gpu.id.clone()));
        self.write_changes(source, &[gpu.into_iter().collect(), changes].concat(), terminal)?;
        let document = || json(&SearchView::new(&candidates, choice, &limits, &with, &left_out));
        let screen = || {
            text::search_screen(job, &candidates, choice, &limits, &with, &terminal.look)
                + &text::left_out(&left_out, &terminal.look)
        };
        terminal.show(self.json, document, screen)?;
        let passes = |candidate: &Candidate| FailOn::passes(self.fail_on, candidate.appraisal.verdict.fit);
        let is_found = matches!(choice, Choice::Best(at) if candidates.get(at).is_some_and(passes));
        Ok(if is_found { Exit::Done } else { Exit::No })
    }

    /// That numbers of GPUs were not searched.
    fn not_spread(&self, job: &JobSpec) -> String {
        let ranks = job.parallel.world_size;
        format!("other numbers of GPUs than {ranks}: several are not simulated for this task, rehearse them")
    }

    fn gpu_groups(&self, job: &JobSpec) -> Result<Vec<Vec<GpuGroup>>, Failure> {
        let mut gpus: Vec<Gpu> = gpu_input::gpus_named(self.gpus.as_deref().unwrap_or("priced"))?;
        // A price of one's own is that of the job's GPU.
        if self.gpus.is_none() && job.run.dollars_per_gpu_hour.is_some() && !gpus.contains(&job.gpu) {
            gpus.push(job.gpu.clone());
        }
        Ok(gpu_groups(job, &gpus, &self.counts, self.gpus.is_some()))
    }

    /// Writes the job file with `changes`, if asked for.
    fn write_changes(&self, source: &JobSource, changes: &[Change], terminal: &Terminal) -> Result<(), Failure> {
        let Some(path) = &self.write else { return Ok(()) };
        let text = job_file_text(source, &overrides(changes, &Origin::Plan))?;
        let name = path.display().to_string();
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| {
            let failure = Failure::about_file(&name, &error);
            let exists = error.kind() == std::io::ErrorKind::AlreadyExists;
            if exists {
                failure.with_hint("--write replaces no file: name another, or remove this one")
            } else {
                failure
            }
        })?;
        file.write_all(text.as_bytes()).map_err(|error| Failure::about_file(&name, &error))?;
        let changed = match changes.len() {
            0 => "nothing changed".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        terminal.note(&format!("wrote {name}: {changed}"));
        Ok(())
    }
}

/// Why remedies need a GPU.
const ASKS: &str = "a plan makes the job fit a GPU";

/// The other way out of a plan without a GPU.
fn hint_at_search(failure: Failure, searches: bool) -> Failure {
    let hint = failure.hint.clone().unwrap_or_default();
    if searches {
        failure
    } else {
        failure.with_hint(format!("{hint}; or search all that have a price: --gpus priced"))
    }
}

/// How what the user measured carries over to other GPUs and to changed jobs.
fn measured_scale(job: &JobSpec) -> Result<Scale, Failure> {
    let own = Scale::own(job);
    if own == Scale::Estimated {
        return Ok(own);
    }
    let base = appraise(job, &job.gpu, Scale::Estimated)?;
    Ok(own.for_others(base.bill.as_ref().and_then(|bill| bill.estimated.as_ref())))
}

fn best_fit(proposals: &Proposals) -> Fit {
    let together = proposals.together.as_ref().map(|together| &together.appraisal);
    together.unwrap_or(&proposals.base).verdict.fit
}
