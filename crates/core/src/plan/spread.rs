//! A job on another number of GPUs, with the same rows per step.

use super::Change;
use super::batch::{Batch, greatest_common_divisor};
use crate::job::keys;
use crate::job::{JobSpec, Passes, Spreading, Strategy, rows_per_step};

/// Whether the job can be put on another number of GPUs.
pub fn can_spread(job: &JobSpec) -> bool {
    job.task.facts().spreading() != Spreading::OneRank
}

/// Why more GPUs would be another training, where a loss is of all rows of a pass.
pub(super) fn why_together(job: &JobSpec) -> Option<&'static str> {
    match (job.task.facts().spreading(), job.task.facts().passes()) {
        (Spreading::Ranks | Spreading::Replicas, Passes::One(why)) => Some(why),
        _ => None,
    }
}

/// The job on `count` GPUs at the same rows per step; `None` where they do not divide.
pub(super) fn spread_over(job: &JobSpec, count: u64) -> Option<Vec<Change>> {
    if count != job.parallel.world_size && why_together(job).is_some() {
        return None;
    }
    match job.task.facts().spreading() {
        Spreading::Nodes { gpus, .. } if count == gpus => Some(Vec::new()),
        Spreading::Nodes { nodes, .. } if count <= nodes => Some(vec![(keys::SWARM_GPUS, count.to_string())]),
        Spreading::Nodes { .. } => None,
        _ if count == job.parallel.world_size => Some(Vec::new()),
        Spreading::OwnRanks => {
            let rows = rows_per_step(job);
            let per_rank = rows.checked_div(count).filter(|rows_each| *rows_each > 0 && rows_each * count == rows)?;
            Some(vec![(keys::WORLD_SIZE, count.to_string()), (keys::MICRO_BATCH_SIZE, per_rank.to_string())])
        }
        _ if job.parallel.replicas() != job.parallel.world_size => None,
        _ => {
            let rows = rows_per_step(job);
            let per_rank = rows.checked_div(count).filter(|rows_each| rows_each * count == rows)?;
            let micro = greatest_common_divisor(per_rank, job.micro_batch_size);
            let mut changes = vec![(keys::WORLD_SIZE, count.to_string())];
            if job.parallel.strategy == Strategy::None {
                changes.push((keys::PARALLEL, "ddp".to_owned()));
            }
            changes.push((keys::MICRO_BATCH_SIZE, micro.to_string()));
            changes.push((keys::GRADIENT_ACCUMULATION_STEPS, (per_rank / micro).to_string()));
            if let Some(steps) = Batch::of(job).steps_per_generation {
                // As many rows are generated at once, over all ranks.
                let rows = steps.checked_mul(job.micro_batch_size)?.checked_mul(job.parallel.world_size)?;
                let steps = rows.checked_div(count * micro).filter(|steps| steps * count * micro == rows)?;
                changes.push((keys::GRPO_STEPS_PER_GENERATION, steps.to_string()));
            }
            Some(changes)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::from_case;

    #[test]
    fn groups_are_generated_by_all_ranks_together() {
        let case =
            json!({"kind": "trl_grpo", "batch": 8, "num_generations": 8, "grad_accum": 2, "steps_per_generation": 4});
        let changes = spread_over(&from_case(&case).unwrap(), 4).unwrap();
        let told = |key: &str| changes.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_str());
        assert_eq!(told(keys::PARALLEL), Some("ddp"));
        assert_eq!((told(keys::MICRO_BATCH_SIZE), told(keys::GRADIENT_ACCUMULATION_STEPS)), (Some("4"), Some("1")));
        // 8 x 4 rows were generated at once, and are.
        assert_eq!(told(keys::GRPO_STEPS_PER_GENERATION), Some("2"));
    }
}
