//! The optimizer's temporaries and its state.

use super::{Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{OptimizerKind, Strategy};

pub(super) const FUSED: Remedy = Remedy {
    name: "fused_optimizer",
    text: "step with the fused kernel instead of foreach, which makes a copy of all parameters",
    results: Results::Rounding,
    caution: "",
    apply: |job| match job.optimizer {
        _ if !job.task.trains() => not_for("nothing is trained"),
        OptimizerKind::Adamw | OptimizerKind::Adam | OptimizerKind::AdamwForloop => {
            change_one(keys::OPTIMIZER, "adamw_fused")
        }
        OptimizerKind::AdamwFused | OptimizerKind::AdamAtan2 => already_done("the optimizer is fused already"),
        _ => not_for("the optimizer has no fused kernel"),
    },
};

pub(super) const EIGHT_BIT: Remedy = Remedy {
    name: "eight_bit_optimizer",
    text: "keep the optimizer's moments in 8 bits (bitsandbytes)",
    results: Results::Changed,
    caution: "",
    apply: |job| match (job.optimizer, job.parallel.strategy) {
        _ if !job.task.trains() => not_for("nothing is trained"),
        (OptimizerKind::PagedAdamw32bit, _) => not_for("the moments are in managed memory"),
        (OptimizerKind::Adamw8bit | OptimizerKind::PagedAdamw8bit, _) => {
            already_done("the moments are in 8 bits already")
        }
        (optimizer, _) if optimizer.is_low_rank() => already_done("the moments are in a low rank already"),
        (optimizer, _) if optimizer.is_compiled() => already_done("the moments are in 8 bits or fewer already"),
        (
            OptimizerKind::Adamw | OptimizerKind::Adam | OptimizerKind::AdamwFused | OptimizerKind::AdamwForloop,
            Strategy::None | Strategy::Ddp(_),
        ) => change_one(keys::OPTIMIZER, "adamw8bit"),
        (_, Strategy::None | Strategy::Ddp(_)) => not_for("the optimizer is no Adam"),
        (_, Strategy::Fsdp2(_)) => not_for("bitsandbytes' kernels take no DTensor, as FSDP2's shards are"),
        _ => not_for("8-bit moments are not simulated on shards"),
    },
};
