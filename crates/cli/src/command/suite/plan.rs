//! `tonnage suite plan`: runs, memory, hours and price, before anything starts.

use clap::Args;
use serde_json::json;
use tonnage_suite::pack::Machine;
use tonnage_suite::plan::Plan;
use tonnage_suite::text::{Against, plan_text as screen};

use super::super::json as document;
use super::source::Source;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage suite plan examples/suites/sapo-gpt2.toml
  tonnage suite plan examples/suites/hrm-arc.toml --suite hierarchical --limit 24
  tonnage suite plan examples/suites/hrm-arc.toml model.H_cycles=1,2 world_size=8 --gpus 8 --json";

/// Tells what a suite comes to before anything starts: runs, memory, hours, price, what shares a GPU
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::SUITE_PLAN))]
pub struct PlanArgs {
    #[command(flatten)]
    source: Source,

    /// GPUs of the machine [default: those of the widest run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    gpus: Option<u32>,

    /// Runs at once, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,

    /// Hours of a session or a job
    #[arg(long, value_name = "HOURS")]
    limit: Option<f64>,

    /// Prints JSON (see docs/suite.md)
    #[arg(long)]
    json: bool,
}

impl PlanArgs {
    /// Plans.
    ///
    /// # Errors
    /// When the suite cannot be read.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let suite = self.source.read_suite()?;
        let plan = suite.make_plan(terminal)?;
        let hours = self.limit.or(suite.file.limits.hours).unwrap_or(0.0);
        if !(hours.is_finite() && hours >= 0.0) {
            return Err(Failure::bad_input("--limit is a number of hours"));
        }
        let slots = self.slots.map(|slots| slots as usize).or(suite.file.run.slots);
        let gpus = self.gpus.map(|gpus| gpus as usize).or(suite.file.limits.gpus);
        let against = Against { machine: machine_for(&plan, gpus, slots), hours };
        match self.json {
            true => terminal.print(&document(&plan_view(&plan, &against))?)?,
            false => terminal.print(&screen(&plan, &against, &terminal.look))?,
        }
        let is_bad = |one: &tonnage_suite::plan::Planned| {
            one.error.is_some() || one.predicted.as_ref().is_some_and(|predicted| predicted.verdict == "does not fit")
        };
        Ok(if plan.configurations.iter().any(is_bad) { Exit::No } else { Exit::Done })
    }
}

/// The machine that a plan is for: as many GPUs as the widest run takes, with the memory of the smallest GPU that is named.
pub fn machine_for(plan: &Plan, gpus: Option<usize>, slots: Option<usize>) -> Machine {
    let predicted = || plan.configurations.iter().filter_map(|one| one.predicted.as_ref());
    let widest = predicted().map(|one| usize::try_from(one.gpus).unwrap_or(usize::MAX)).max().unwrap_or(1);
    let gpus = gpus.unwrap_or(widest.min(1024));
    Machine {
        gpus,
        usable_bytes: predicted().map(|one| one.usable_bytes).min().unwrap_or(0),
        // Where no bytes are known, a GPU carries one run.
        slots: slots.unwrap_or(if predicted().next().is_some() { usize::MAX } else { gpus }),
    }
}

fn plan_view(plan: &Plan, against: &Against) -> serde_json::Value {
    let placed = plan.packed_on(&against.machine);
    let mut places: Vec<Option<serde_json::Value>> = vec![None; plan.runs.len()];
    for one in placed {
        places[one.item] = Some(json!({"gpus": one.gpus, "start_seconds": one.start, "end_seconds": one.end}));
    }
    let run = |(run, place): (&tonnage_suite::plan::PlannedRun, Option<serde_json::Value>)| json!({"id": run.id, "configuration": plan.planned_of(run).name, "seed": run.seed, "place": place});
    json!({
        "version": tonnage_report::VERSION,
        "suite": plan.suite,
        "code": plan.code,
        "directory": plan.directory,
        "machine": {"gpus": against.machine.gpus, "usable_bytes": against.machine.usable_bytes},
        "configurations": plan.configurations,
        "runs": plan.runs.iter().zip(places).map(run).collect::<Vec<_>>(),
        "total": {
            "runs": plan.runs.len(),
            "wall_seconds": plan.total(|one| one.seconds),
            "gpu_hours": plan.total(|one| one.gpu_hours),
            "kilowatt_hours": plan.total(|one| one.kilowatt_hours),
            "dollars": plan.total(|one| one.dollars),
        },
    })
}
