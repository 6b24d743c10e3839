//! Activations made again instead of kept.

use super::{Applied, Remedy, Results, already_done, change_one, is_read, not_for};
use crate::job::keys;
use crate::job::{CheckpointPolicy, JobSpec};

pub(super) const LAYERS: Remedy = Remedy {
    name: "checkpointing",
    text: "make every layer's activations again in backward",
    results: Results::Same,
    caution: "",
    apply: checkpoint_layers,
};

fn checkpoint_layers(job: &JobSpec) -> Applied {
    is_read(job, keys::GRADIENT_CHECKPOINTING)?;
    match job.gradient_checkpointing {
        _ if !job.task.trains() || !job.train_mode => not_for("nothing is kept for a backward pass"),
        CheckpointPolicy::Off => change_one(keys::GRADIENT_CHECKPOINTING, "true"),
        CheckpointPolicy::EveryLayer => already_done("every layer is checkpointed already"),
    }
}
