//! Another number of rows at exactly the same effective batch: what accumulation makes up for, groups kept whole.

use crate::job::keys::{GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, MICRO_BATCH_SIZE};
use crate::job::{JobSpec, Origin, Override, Passes};

/// A micro-batch and what makes up for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Rows of a forward pass.
    pub micro_batch_size: u64,
    /// Passes per optimizer step.
    pub gradient_accumulation_steps: u64,
    /// For GRPO: micro-batches generated at once.
    pub steps_per_generation: Option<u64>,
}

impl Batch {
    /// What the job says.
    pub fn of(job: &JobSpec) -> Self {
        let steps_per_generation = match passes_of_rank(job) {
            Passes::WholeGroups { steps_per_generation, .. } => Some(steps_per_generation),
            _ => None,
        };
        Self {
            micro_batch_size: job.micro_batch_size,
            gradient_accumulation_steps: job.gradient_accumulation_steps,
            steps_per_generation,
        }
    }

    /// Rows per optimizer step on one rank.
    pub const fn effective(&self) -> u64 {
        self.micro_batch_size.saturating_mul(self.gradient_accumulation_steps)
    }

    /// The job's batch in passes of `rows`: the same effective batch where `rows` divides it, else the smallest larger one
    /// of whole groups; `None` where rows are not the job's to choose (a swarm's node).
    pub fn with_rows(job: &JobSpec, rows: u64) -> Option<Self> {
        let now = Self::of(job);
        let effective = now.effective();
        match passes_of_rank(job) {
            Passes::Counted(_) => None,
            Passes::One(_) => Some(Self { micro_batch_size: rows, ..now }),
            Passes::WholeGroups { group, steps_per_generation } => {
                let wanted = effective.max(rows).next_multiple_of(least_common_multiple(rows, group)?);
                let passes = wanted / rows.max(1);
                // The generated batch stays what it was, or as large as a step of whole groups.
                let generated = now.micro_batch_size.saturating_mul(steps_per_generation);
                let generated = generated.max(1).next_multiple_of(least_common_multiple(rows, group)?);
                Some(Self {
                    micro_batch_size: rows,
                    gradient_accumulation_steps: passes,
                    steps_per_generation: Some(generated / rows.max(1)),
                })
            }
            Passes::Accumulated => Some(Self {
                micro_batch_size: rows,
                gradient_accumulation_steps: effective.max(1).div_ceil(rows.max(1)),
                steps_per_generation: None,
            }),
        }
    }

    /// The job in passes of `rows`, as few as can be: one, or those of whole groups. `None` where passes are not accumulated.
    pub fn in_fewest_passes(job: &JobSpec, rows: u64) -> Option<Self> {
        let passes = match passes_of_rank(job) {
            Passes::Counted(_) | Passes::One(_) => return None,
            Passes::WholeGroups { group, .. } => least_common_multiple(rows, group)? / rows.max(1),
            Passes::Accumulated => 1,
        };
        let now = Self::of(job);
        Some(Self {
            micro_batch_size: rows,
            gradient_accumulation_steps: passes,
            steps_per_generation: now.steps_per_generation.map(|_| passes),
        })
    }

    /// The changes that make it the batch of `job`, set by `origin`.
    pub fn overrides(&self, job: &JobSpec, origin: &Origin) -> Vec<Override> {
        let set = |key: &str, value: u64| Override::new(key, value, origin.clone());
        let mut changes = vec![set(MICRO_BATCH_SIZE, self.micro_batch_size)];
        if *self != (Self { micro_batch_size: self.micro_batch_size, ..Self::of(job) }) {
            changes.push(set(GRADIENT_ACCUMULATION_STEPS, self.gradient_accumulation_steps));
        }
        changes.extend(self.steps_per_generation.map(|steps| set(GRPO_STEPS_PER_GENERATION, steps)));
        changes
    }
}

/// How the rows of a rank become passes: a group may lie on several ranks, each of which generates as many rows.
pub(super) fn passes_of_rank(job: &JobSpec) -> Passes {
    match job.task.facts().passes() {
        Passes::WholeGroups { group, steps_per_generation } => {
            let together = greatest_common_divisor(group, job.parallel.replicas());
            Passes::WholeGroups { group: group / together, steps_per_generation }
        }
        passes => passes,
    }
}

fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    (a.max(1) / greatest_common_divisor(a, b)).checked_mul(b.max(1))
}

pub(super) fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::from_case;

    fn batch(job: &JobSpec, rows: u64) -> (u64, u64, Option<u64>) {
        let batch = Batch::with_rows(job, rows).unwrap();
        (batch.micro_batch_size, batch.gradient_accumulation_steps, batch.steps_per_generation)
    }

    #[test]
    fn accumulation_makes_up_for_smaller_passes() {
        let job = from_case(&json!({"micro_batch": 8, "grad_accum": 2})).unwrap();
        assert_eq!(batch(&job, 4), (4, 4, None));
        assert_eq!(batch(&job, 16), (16, 1, None));
        assert_eq!(batch(&job, 32), (32, 1, None));
    }

    #[test]
    fn groups_stay_whole() {
        let job = from_case(&json!({"kind": "trl_grpo", "batch": 8, "num_generations": 8})).unwrap();
        assert_eq!(batch(&job, 1), (1, 8, Some(8)));
        assert_eq!(batch(&job, 4), (4, 2, Some(2)));
        assert_eq!(batch(&job, 16), (16, 1, Some(1)));
        // 12 rows and groups of 8 meet at 24.
        assert_eq!(batch(&job, 12), (12, 2, Some(2)));
        for rows in 1..40 {
            let batch = Batch::with_rows(&job, rows).unwrap();
            assert!((batch.micro_batch_size * batch.steps_per_generation.unwrap()).is_multiple_of(8));
            assert!(batch.effective() >= 8 && batch.effective().is_multiple_of(8));
        }
    }

    #[test]
    fn a_group_may_lie_on_several_ranks() {
        let case = json!({"kind": "trl_grpo", "batch": 2, "num_generations": 8, "grad_accum": 2, "world": 4});
        let job = from_case(&case).unwrap();
        assert_eq!(batch(&job, 1), (1, 4, Some(4)));
        assert_eq!(batch(&job, 4), (4, 1, Some(1)));
        // 8 rows on each of 3 ranks are whole groups on each.
        let job = from_case(&json!({"kind": "trl_grpo", "batch": 8, "num_generations": 8, "world": 3})).unwrap();
        assert_eq!(batch(&job, 3), (3, 8, Some(8)));
    }

    #[test]
    fn a_swarm_chooses_its_rows_itself() {
        let job = from_case(&json!({"kind": "swarm_node"})).unwrap();
        assert_eq!(Batch::with_rows(&job, 4), None);
    }
}
