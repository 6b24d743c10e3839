//! How a case of a trainer shards a model over its ranks, as `testdata/steps/sharded.py` has it.

use serde::Deserialize;

use super::deepspeed::Zero;
use super::trainer::{CaseFsdp1, ranks_of_trainer};
use crate::job::{Parallel, Precision, Strategy};

/// `sharded` of a case, with the fields of the library's own config.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CaseSharding {
    Fsdp1(CaseFsdp1),
    Zero(Zero),
}

impl CaseSharding {
    fn strategy(self, precision: Precision) -> Strategy {
        match self {
            Self::Fsdp1(fsdp1) => fsdp1.strategy(precision, false),
            Self::Zero(zero) => Strategy::DeepSpeed(zero.options()),
        }
    }
}

/// Ranks of a trainer of TRL's: under DDP, or sharded.
pub(super) fn ranks_of_trl(
    (world_size, sharding): (u64, Option<CaseSharding>),
    precision: Precision,
    is_peft: bool,
    recomputes: bool,
) -> Parallel {
    let ranks = ranks_of_trainer(world_size, is_peft, recomputes);
    match sharding {
        Some(sharding) => Parallel { strategy: sharding.strategy(precision), ..ranks },
        None => ranks,
    }
}
