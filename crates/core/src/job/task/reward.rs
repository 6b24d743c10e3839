//! Reward models as TRL's `RewardTrainer` trains them: a score of each chosen and of each rejected row, in one batch.

use super::{Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

/// What training a reward model needs to be told. `micro_batch_size` counts pairs: a pass has twice as many rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RewardSpec {
    /// The weight of the loss that keeps rewards around zero (`center_rewards_coefficient`); 0 is none.
    pub center_rewards_coefficient: f64,
    /// Whether dropout is turned off.
    pub disable_dropout: bool,
}

impl TaskFacts for RewardSpec {
    fn name(&self) -> TaskName {
        TaskName::Reward
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::trainer::check_reward(job)
    }

    fn learns_preferences(&self) -> bool {
        true
    }

    fn spreading(&self) -> Spreading {
        Spreading::Replicas
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}
