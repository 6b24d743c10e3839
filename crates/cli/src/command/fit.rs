//! `tonnage fit`: which batch fits which GPU.

use std::fs;
use std::path::PathBuf;
use tonnage_core::small_sort::SmallSort;

use clap::Args;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::keys::{GPU, MODEL};
use tonnage_core::job::{Origin, Override};
use tonnage_core::plan::fit::GpuVerdict;
use tonnage_core::plan::largest::{MostRows, Searches, Wanted};
use tonnage_core::plan::table::{Row, Variant, answer_long_rows, answer_part, pruned_parts, table_parts, table_rows};
use tonnage_core::plan::verdict_table::VerdictTable;
use tonnage_report::{FitAnswer, FitView, fit_csv, text};

use super::{axes, json, solve};
use crate::exit::{self, Exit, FailOn};
use crate::failure::Failure;
use crate::gpu_input;
use crate::job_args::{self, JobArgs};
use crate::job_input::{gather_each, read_source};
use crate::same_job;
use crate::sweep::{sweep_items, thread_count};
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage fit llama-3.1-8b --precision bf16 --gpus h200,h100,a100-80,l40s
  tonnage fit examples/grpo-7b-judge-14b.toml --gpus h200,h100,a100-80 --rows 1,4,8,16,32
  tonnage fit examples/sapo-gpt2-swarm.toml --gpus all
  tonnage fit gpt2 --seq-len 256,512,1024 --rows 8,16,32 --csv table.csv
  tonnage fit gpt2 --gpus l4,24GiB,mine.toml --rows 4,8,16,32,64 --prune --json
  tonnage fit llama-3.1-8b --precision bf16 --lora-r 16 --gpus h100,a100-80,l40s --solve seq_len
  tonnage fit --models gpt2,gpt2-medium,qwen2.5-0.5b,qwen2.5-1.5b --precision bf16 --gpus l4,t4";

/// A table of more rows is not shown beside the file it was written to.
const MOST_SHOWN: usize = 100;

/// More variants than this take too long to be meant.
const MOST_VARIANTS: usize = 100_000;

/// Tells which batch fits which GPU, and the largest that does
#[derive(Args)]
#[command(after_help = job_args::SHORT, after_long_help = format!("{EXAMPLES}\n\nA list (`--seq-len 256,512`, `--set precision=bf16,fp32`) makes a variant of each value.\n\n{}", exit::FIT))]
pub struct FitArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// The GPUs: names, sizes (24GiB), GPU files, `live`, `all` of the catalog or those `priced` in it [default: the job's, else all]
    #[arg(long, value_name = "A,B", help_heading = "Answer")]
    gpus: Option<String>,

    /// Rows of a pass; accumulation keeps the effective batch, and groups of completions whole [default: the job's]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..), help_heading = "Answer")]
    rows: Vec<u64>,

    /// Models, a line each: names or folders
    #[arg(long, value_name = "A,B", value_delimiter = ',', help_heading = "Answer")]
    models: Vec<String>,

    /// The largest value of this key that fits each GPU: seq_len, micro_batch_size, lora.r, grpo.num_generations, model.num_hidden_layers
    #[arg(long, value_name = "KEY", conflicts_with_all = ["rows", "prune", "no_largest", "fail_on"], help_heading = "Answer")]
    solve: Option<String>,

    /// Leaves out the search for the largest micro-batch
    #[arg(long, help_heading = "Answer")]
    no_largest: bool,

    /// Leaves out more rows of what fits on none of the GPUs already, in as many passes: more rows never need less
    #[arg(long, help_heading = "Answer")]
    prune: bool,

    /// Writes a line for every variant and GPU
    #[arg(long, value_name = "FILE", help_heading = "Answer")]
    csv: Option<PathBuf>,

    /// What else than `does not fit` ends with exit code 1
    #[arg(long, value_name = "VERDICT", help_heading = "Answer")]
    fail_on: Option<FailOn>,

    /// Prints JSON (see docs/json.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,
}

impl FitArgs {
    /// Answers.
    ///
    /// # Errors
    /// When the job cannot be resolved or simulated, or a file cannot be written.
    pub fn run(mut self, terminal: &Terminal) -> Result<Exit, Failure> {
        let mut axes = axes::take_axes(&mut self.job.overrides)?;
        // Several GPUs are columns, however they are named.
        let listed = axes.iter().position(|axis| axis.iter().any(|value| value.key == GPU)).map(|at| axes.remove(at));
        if let (None, Some(listed)) = (&self.gpus, listed) {
            let names: Vec<&str> = listed.iter().map(|value| value.value.as_str()).collect();
            self.gpus = Some(names.join(","));
        }
        if let Some(models) = model_overrides(&self.models) {
            if self.job.model.is_some() {
                return Err(Failure::bad_input("a model is given beside --models").with_hint("name it in the list"));
            }
            self.job.model = self.models.first().cloned();
            axes.insert(0, models);
        }
        let source = gather_each(read_source(&self.job)?, axes.iter().flatten())?;
        let first: Vec<Override> = axes.iter().filter_map(|axis| axis.first().cloned()).collect();
        let base = source.resolve(&first)?;
        let gpus = asked_gpus(self.gpus.as_deref(), base.names_gpu().then_some(&base.job.gpu))?;
        let variants = cross_variants(&axes, &self.rows)?;
        let named = self.gpus.as_deref().or((!base.names_gpu()).then_some("all"));
        let plan = same_job::plan_command(&self.job, &first, named);
        if let Some(key) = &self.solve {
            let solved = solve::solve_key(key, base, gpus, &variants, &source, terminal)?;
            let exit = solve::show_solved(&solved, self.csv.as_deref(), self.json, terminal)?;
            return self.way_out(exit, plan, terminal);
        }
        let known = VerdictTable::new(&base.job, &gpus, &source).for_variants(variants.len());
        let threads = thread_count();
        let parts = if self.prune { pruned_parts(&known, &variants) } else { table_parts(&known, &variants, threads) };
        sweep_items(&[()], terminal, |()| answer_long_rows(&known, &variants, &source, threads));
        let answers = sweep_items(&parts, terminal, |part| answer_part(&known, &variants, part, &source));
        let rows = table_rows(&known, &variants, answers.into_iter().flatten().collect());
        let largest = if self.no_largest || !axes.is_empty() { Vec::new() } else { search_largest(&known, terminal) };
        // Of a job whose rows are not to choose, nothing is the largest.
        let largest = if largest.iter().all(|found| *found == MostRows::Nothing) && self.rows.is_empty() {
            Vec::new()
        } else {
            largest
        };
        let answer = FitAnswer { job: base.job, gpus, rows, largest };
        let exit = self.show_answer(&answer, terminal)?;
        self.way_out(exit, plan, terminal)
    }

    /// Under a table of which nothing fits, the command that finds what does.
    fn way_out(&self, exit: Exit, plan: Option<String>, terminal: &Terminal) -> Result<Exit, Failure> {
        match plan.filter(|_| exit == Exit::No && !self.json) {
            Some(plan) => terminal.print(&text::way_out(&plan, &terminal.look)).map(|()| exit),
            None => Ok(exit),
        }
    }

    fn show_answer(&self, answer: &FitAnswer, terminal: &Terminal) -> Result<Exit, Failure> {
        all_impossible(&answer.rows)?;
        if let Some(path) = &self.csv {
            fs::write(path, fit_csv(answer))
                .map_err(|error| Failure::about_file(&path.display().to_string(), &error))?;
        }
        let screen = || match &self.csv {
            // Nobody reads so long a table twice.
            Some(path) if answer.rows.len() > MOST_SHOWN => {
                format!("{} variants in {}\n", answer.rows.len(), path.display())
            }
            _ => text::fit_table(answer, &terminal.look),
        };
        terminal.show(self.json, || json(&FitView::new(answer)), screen)?;
        let passes = |verdict: &GpuVerdict| FailOn::passes(self.fail_on, verdict.fit);
        let fits = answer.rows.iter().flat_map(|row| &row.cells).flatten().any(passes);
        Ok(if fits { Exit::Done } else { Exit::No })
    }
}

/// The largest batch for each GPU, as many estimates at once as there are cores.
fn search_largest(known: &VerdictTable<'_>, terminal: &Terminal) -> Vec<MostRows> {
    let mut searches = Searches::new(known);
    while let wanted @ [_, ..] = &searches.next_round()[..] {
        sweep_items(wanted, terminal, Wanted::learn);
    }
    searches.into_found()
}

/// The models as values of a key.
fn model_overrides(names: &[String]) -> Option<Vec<Override>> {
    let value = |name: &String| Override::new(MODEL, name.trim(), Origin::Flag("--models".to_owned()));
    (!names.is_empty()).then(|| names.iter().map(value).collect())
}

/// A job that is impossible in every variant has another fault.
fn all_impossible(rows: &[Row]) -> Result<(), Failure> {
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    match (cells.clone().any(Result::is_ok), cells.next()) {
        (false, Some(Err(problem))) => Err(Failure::bad_input(problem.to_string())),
        _ => Ok(()),
    }
}

/// Every combination of the axes and the rows.
fn cross_variants(axes: &[Vec<Override>], rows: &[u64]) -> Result<Vec<Variant>, Failure> {
    let mut variants = vec![Variant::default()];
    for axis in axes {
        let with = |variant: &Variant, change: &Override| Variant {
            changes: [variant.changes.as_slice(), std::slice::from_ref(change)].concat(),
            rows: None,
        };
        variants = variants
            .iter()
            .flat_map(|variant| axis.iter().map(|change| with(variant, change)).collect::<Vec<_>>())
            .collect();
        if variants.len().saturating_mul(rows.len().max(1)) > MOST_VARIANTS {
            return Err(
                Failure::bad_input(format!("more than {MOST_VARIANTS} variants")).with_hint("give fewer values")
            );
        }
    }
    if rows.is_empty() {
        return Ok(variants);
    }
    let with = |variant: &Variant, rows: u64| Variant { rows: Some(rows), ..variant.clone() };
    Ok(variants.iter().flat_map(|variant| rows.iter().map(|rows| with(variant, *rows)).collect::<Vec<_>>()).collect())
}

/// Those of `--gpus`, else the job's, else all; of the whole catalog the largest first.
fn asked_gpus(names: Option<&str>, own: Option<&Gpu>) -> Result<Vec<Gpu>, Failure> {
    let names = match (names, own) {
        (None, Some(own)) => return Ok(vec![own.clone()]),
        (names, _) => names.unwrap_or("all"),
    };
    let mut gpus = gpu_input::gpus_named(names)?;
    if ["all", "priced"].iter().any(|word| names.trim().eq_ignore_ascii_case(word)) {
        gpus.small_sort_by_key(|gpu| std::cmp::Reverse(gpu.usable_bytes));
    }
    Ok(gpus)
}
