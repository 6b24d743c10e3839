//! Fewer rows a pass, more passes a step.

use super::{Applied, Remedy, Results, not_for};
use crate::job::keys::{GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, MICRO_BATCH_SIZE};
use crate::job::{JobSpec, Passes};
use crate::plan::batch::Batch;

/// A smaller micro-batch.
pub const SMALLER: Remedy = Remedy {
    name: "smaller_micro_batch",
    text: "fewer rows a pass and as many more passes: exactly the same effective batch",
    results: Results::Rounding,
    caution: "products of fewer rows also reach less of the GPU's rate, which is not in the factor",
    apply: fewer_rows,
};

/// Half the rows, or the most below that which divide the effective batch and leave groups whole.
fn fewer_rows(job: &JobSpec) -> Applied {
    if !job.task.trains() {
        return not_for("nothing is accumulated");
    }
    if let Passes::One(why) | Passes::Counted(why) = job.task.facts().passes() {
        return not_for(why);
    }
    if job.micro_batch_size < 2 {
        return not_for("a pass has one row already");
    }
    let effective = Batch::of(job).effective();
    let divisors = (1..=job.micro_batch_size / 2).rev().filter(|rows| effective.is_multiple_of(*rows));
    let same = |batch: &Batch| batch.effective() == effective;
    let Some(batch) = divisors.filter_map(|rows| Batch::with_rows(job, rows)).find(same) else {
        return not_for("fewer rows do not make the same effective batch");
    };
    let mut changes = vec![
        (MICRO_BATCH_SIZE, batch.micro_batch_size.to_string()),
        (GRADIENT_ACCUMULATION_STEPS, batch.gradient_accumulation_steps.to_string()),
    ];
    changes.extend(batch.steps_per_generation.map(|steps| (GRPO_STEPS_PER_GENERATION, steps.to_string())));
    Ok(changes)
}
