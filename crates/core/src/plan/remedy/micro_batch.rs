//! Fewer rows a pass, more passes a step.

use super::{Applied, Remedy, Results, not_for};
use crate::plan::batch::Batch;
use crate::spec::{JobSpec, Task};

pub(super) const SMALLER: Remedy = Remedy {
    name: "smaller_micro_batch",
    text: "halve the rows of a pass and accumulate twice as often: exactly the same effective batch",
    results: Results::Same,
    caution: "products of fewer rows also reach less of the GPU's rate, which is not in the factor",
    apply: halved,
};

/// Half the rows, where both the rows and the groups they come in divide.
fn halved(job: &JobSpec) -> Applied {
    if !job.task.trains() {
        return not_for("nothing is accumulated");
    }
    if job.task == Task::Hrm {
        return not_for("HRM's code does not accumulate: put its rows on more GPUs");
    }
    if matches!(job.task, Task::Swarm(_)) {
        return not_for("a node trains on all its rows in one pass");
    }
    if job.micro_batch_size < 2 || !job.micro_batch_size.is_multiple_of(2) {
        return not_for("the rows of a pass do not halve");
    }
    let Some(batch) = Batch::with_rows(job, job.micro_batch_size / 2) else {
        return not_for("rows are not the job's to choose");
    };
    if batch.effective() != Batch::of(job).effective() {
        return not_for("half the rows do not make the same effective batch");
    }
    let mut changes = vec![
        ("micro_batch_size", batch.micro_batch_size.to_string()),
        ("gradient_accumulation_steps", batch.gradient_accumulation_steps.to_string()),
    ];
    changes.extend(batch.steps_per_generation.map(|steps| ("grpo.steps_per_generation", steps.to_string())));
    Ok(changes)
}
