//! The batches that an attempt may have: all with exactly the effective batch that was asked for, groups whole.

use tonnage_core::estimate::Fit;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{JobSpec, Origin, Override, Passes};
use tonnage_core::plan::batch::Batch;
use tonnage_core::plan::fit::{GpuVerdict, verdict_on};

use super::{Job, Room};

/// Equal effective batches, the largest micro-batch first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches(pub Vec<Batch>);

/// A batch that was estimated.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The batch; `None` where rows are not the job's to choose.
    pub batch: Option<Batch>,
    /// What it needs.
    pub verdict: GpuVerdict,
    /// What observations add to that.
    pub more_bytes: u64,
}

impl Batches {
    /// The batches with which `job` is the same training, from its own micro-batch down to `least`.
    pub fn of(job: &JobSpec, least: u64) -> Self {
        let now = Batch::of(job);
        let equals =
            |batch: &Batch| batch.effective() == now.effective() && generated_rows(batch) == generated_rows(&now);
        let rows = (least.max(1)..=now.micro_batch_size).rev();
        let rows = rows.filter(|rows| *rows == now.micro_batch_size || now.effective().is_multiple_of(*rows));
        let batch = |rows: u64| if rows == now.micro_batch_size { Some(now) } else { Batch::with_rows(job, rows) };
        Self(rows.filter_map(batch).filter(equals).collect())
    }

    /// Why there is but one, where there is.
    pub fn why_not(job: &JobSpec) -> &'static str {
        match job.task.facts().passes() {
            Passes::One(why) | Passes::Counted(why) => why,
            Passes::Accumulated | Passes::WholeGroups { .. } => "no smaller micro-batch divides the effective batch",
        }
    }

    /// The largest that is predicted to fit `comfortably`, or tightly where that is enough, by bisection; `below` excludes a
    /// size that has failed and all above.
    pub fn largest_batch(
        &self,
        job: &Job<'_>,
        changes: &[Override],
        room: &Room,
        (below, comfortably): (Option<u64>, bool),
    ) -> Option<Choice> {
        let enough = |fit: Fit| fit == Fit::Fits || (fit.may_fit() && !comfortably);
        self.first_batch(below, |batch| {
            choose_batch(job, Some(batch), changes, room).filter(|choice| enough(choice.verdict.fit))
        })
    }

    /// The first that `try_batch` takes, of those below `below`, the largest first: need falls with the rows.
    pub(super) fn first_batch(
        &self,
        below: Option<u64>,
        try_batch: impl Fn(Batch) -> Option<Choice>,
    ) -> Option<Choice> {
        let smaller = |batch: &&Batch| below.is_none_or(|failed| batch.micro_batch_size < failed);
        let candidates: Vec<Batch> = self.0.iter().filter(smaller).copied().collect();
        let (mut low, mut high) = (0, candidates.len());
        let mut best = None;
        while low < high {
            let middle = low.midpoint(high);
            match candidates.get(middle).and_then(|batch| try_batch(*batch)) {
                Some(choice) => {
                    best = Some(choice);
                    high = middle;
                }
                None => low = middle + 1,
            }
        }
        best
    }
}

/// Rows generated at once, of a job that generates.
fn generated_rows(batch: &Batch) -> Option<u64> {
    batch.steps_per_generation.map(|steps| steps.saturating_mul(batch.micro_batch_size))
}

/// The job with a batch and changes, on what the GPU has for it.
pub(super) fn choose_batch(job: &Job<'_>, batch: Option<Batch>, changes: &[Override], room: &Room) -> Option<Choice> {
    let mut all = batch.map(|batch| batch.overrides(&job.spec, &Origin::Guard)).unwrap_or_default();
    all.extend_from_slice(changes);
    let resolved = job.source.resolve(&all).ok()?;
    let gpu = Gpu { usable_bytes: room.for_estimates(), ..job.spec.gpu.clone() };
    let verdict = verdict_on(&resolved.job, &gpu).ok()?;
    Some(Choice { batch, verdict, more_bytes: room.correction.offset_bytes })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tonnage_core::job::from_case;

    use super::*;

    fn rows(case: &serde_json::Value, least: u64) -> Vec<(u64, u64)> {
        let job = from_case(case).unwrap();
        let pair = |batch: &Batch| (batch.micro_batch_size, batch.gradient_accumulation_steps);
        Batches::of(&job, least).0.iter().map(pair).collect()
    }

    #[test]
    fn only_equal_batches_are_candidates() {
        let case = json!({"micro_batch": 12, "grad_accum": 2});
        assert_eq!(rows(&case, 1), [(12, 2), (8, 3), (6, 4), (4, 6), (3, 8), (2, 12), (1, 24)]);
        assert_eq!(rows(&case, 4), [(12, 2), (8, 3), (6, 4), (4, 6)]);
        assert_eq!(rows(&json!({"micro_batch": 7}), 1), [(7, 1), (1, 7)]);
    }

    #[test]
    fn groups_stay_whole() {
        let case = json!({"kind": "trl_grpo", "batch": 8, "num_generations": 8});
        assert_eq!(rows(&case, 1), [(8, 1), (4, 2), (2, 4), (1, 8)]);
    }

    #[test]
    fn a_swarm_has_none() {
        let job = from_case(&json!({"kind": "swarm_node"})).unwrap();
        assert_eq!(Batches::of(&job, 1).0.len(), 1);
        assert!(Batches::why_not(&job).contains("questions"));
    }
}
