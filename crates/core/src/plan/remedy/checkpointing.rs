//! Activations made again instead of kept.

use super::{Remedy, Results, done, not_for, one};
use crate::spec::{CheckpointPolicy, Task};

pub(super) const LAYERS: Remedy = Remedy {
    name: "checkpointing",
    text: "make every layer's activations again in backward",
    results: Results::Same,
    caution: "",
    apply: |job| match job.gradient_checkpointing {
        _ if job.task == Task::Hrm => not_for("HRM's code has no checkpointing"),
        _ if !job.task.trains() || !job.train_mode => not_for("nothing is kept for a backward pass"),
        CheckpointPolicy::Off => one("gradient_checkpointing", "true"),
        CheckpointPolicy::EveryLayer => done("every layer is checkpointed already"),
    },
};
