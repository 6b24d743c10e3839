//! Embeddings of a few rows at a time, whose gradients are computed once the loss of the whole batch is known (GradCache).

use super::{Applied, Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{JobSpec, Task};

/// What sentence-transformers' cached losses take where nothing is said (losses/cached_multiple_negatives_ranking.py).
const MINI_BATCH_SIZE: u64 = 32;

pub(super) const CACHED_LOSS: Remedy = Remedy {
    name: "cached_loss",
    text: "embed a few rows at a time, twice (GradCache): exactly the same batch and negatives",
    results: Results::Rounding,
    caution: "",
    apply: fewer_at_once,
};

fn fewer_at_once(job: &JobSpec) -> Applied {
    let Task::Embedding(spec) = &job.task else { return not_for("no loss of it is cached") };
    let half = match spec.mini_batch_size {
        Some(size) => size / 2,
        None => MINI_BATCH_SIZE.min(job.micro_batch_size / 2),
    };
    match half {
        0 => already_done("one row is embedded at a time"),
        rows => change_one(keys::EMBEDDING_MINI_BATCH_SIZE, rows.to_string()),
    }
}
