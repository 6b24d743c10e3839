//! `tonnage trace compare`: the predicted trace beside a recorded one, up to the first difference.

use clap::Args;
use serde_json::{Value, json};
use tonnage_core::recording::{
    Comparison, Difference, DifferenceKind, GroupDifference, Names, Place, RecordedEvent, Recording, compare,
};
use tonnage_report::text;

use super::recorded;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::job_args::JobArgs;
use crate::job_input::{read_source, simulate_resolved};
use crate::terminal::Terminal;

const EXAMPLES: &str = "Examples:
  tonnage trace compare job.toml snapshot.pickle
  tonnage trace compare gpt2 recorded.jsonl.gz -b 4 --names";

/// Compares the predicted trace of a job with a recorded one, event by event
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::TRACE))]
pub struct CompareArgs {
    #[command(flatten)]
    job: JobArgs,

    /// A timeline (.jsonl) or a snapshot of torch.cuda.memory._dump_snapshot(), also compressed (.gz)
    recording: Option<String>,

    /// Operators, modules and autograd nodes must agree too, not bytes and lifetimes alone
    #[arg(long, help_heading = "Answer")]
    names: bool,

    /// Which device of a snapshot
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Answer")]
    device: usize,

    /// Prints JSON (see docs/json.md)
    #[arg(long, help_heading = "Answer")]
    json: bool,
}

impl CompareArgs {
    /// Compares them.
    ///
    /// # Errors
    /// When the job cannot be simulated or the recording cannot be read.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let Some(path) = &self.recording else {
            return Err(Failure::bad_input("no recording is given").with_hint("`tonnage trace compare JOB RECORDING`"));
        };
        let mut recording = recorded::read_recording(path, self.device)?;
        end_with_the_job(&mut recording);
        let resolved = read_source(&self.job)?.resolve(&[])?;
        let simulated = simulate_resolved(&resolved)?;
        let names = if self.names { Names::Compare } else { Names::Ignore };
        let comparison = compare(simulated.trace(), &recording, names);
        let document = || Ok(format!("{:#}\n", comparison_json(&comparison)));
        terminal.show(self.json, document, || text::comparison_screen(&comparison, &terminal.look))?;
        Ok(if comparison.first.is_none() { Exit::Done } else { Exit::No })
    }
}

fn comparison_json(comparison: &Comparison) -> Value {
    let group = |group: &GroupDifference| {
        json!({
            "phase": group.phase,
            "op": group.op,
            "predicted": {"allocations": group.predicted.0, "bytes": group.predicted.1},
            "recorded": {"allocations": group.recorded.0, "bytes": group.recorded.1},
        })
    };
    json!({
        "version": 1,
        "equal_allocations": comparison.equal_allocations,
        "compares_phases": comparison.compares_phases,
        "first_difference": comparison.first.as_ref().map(difference_json),
        "differences_by_op": comparison.groups.iter().map(group).collect::<Vec<_>>(),
    })
}

fn difference_json(difference: &Difference) -> Value {
    let place = |place: &Place| {
        json!({
            "event": place.event,
            "phase": place.phase,
            "op": &*place.allocation.op,
            "module": &*place.allocation.module,
            "node": place.allocation.node.as_deref(),
            "bytes": place.allocation.bytes,
        })
    };
    let kind = match &difference.kind {
        DifferenceKind::Allocation(fields) => format!("allocation differs in {}", fields.join(", ")),
        DifferenceKind::FreedEarly => "freed early".to_owned(),
        DifferenceKind::FreedLate => "freed late".to_owned(),
        DifferenceKind::Ended => "one side has ended".to_owned(),
    };
    json!({
        "kind": kind,
        "predicted": difference.predicted.as_ref().map(place),
        "recorded": difference.recorded.as_ref().map(place),
    })
}

/// Cuts what a process frees as it leaves: the prediction stops at the `end` of the job.
fn end_with_the_job(recording: &mut Recording) {
    let ends = |event: &RecordedEvent| matches!(event, RecordedEvent::Phase(phase) if phase.name == "end");
    if let Some(end) = recording.events.iter().position(ends) {
        recording.events.truncate(end + 1);
    }
}
