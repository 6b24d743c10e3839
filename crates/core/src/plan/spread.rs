//! A job on another number of GPUs, with the same rows per step.

use super::Change;
use crate::job::keys;
use crate::job::{JobSpec, Spreading, Strategy, rows_per_step};

/// Whether the job can be put on another number of GPUs.
pub fn can_spread(job: &JobSpec) -> bool {
    job.task.facts().spreading() != Spreading::OneRank
}

/// The job on `count` GPUs at the same rows per step; `None` where they do not divide.
pub(super) fn spread_over(job: &JobSpec, count: u64) -> Option<Vec<Change>> {
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
            Some(changes)
        }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { greatest_common_divisor(b, a % b) }
}
