//! PPO as TRL's `PPOTrainer` runs it (TRL 1.12, the last version that has it): a policy with a value model, beside a reference and a
//! reward model.

use serde::{Deserialize, Serialize};

use super::{Passes, TaskFacts, TaskName};
use crate::job::{Head, JobError, JobSpec, ModelSpec, check, keys};

/// What PPO needs beyond the policy. `micro_batch_size` counts rows of a pass, of which `gradient_accumulation_steps` are generated at
/// once.
#[derive(Clone, Debug, PartialEq)]
pub struct PpoSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of an answer.
    pub response_length: u64,
    /// How often each update trains on its rows.
    pub num_ppo_epochs: u64,
    /// Parts of an update's rows; memory is let go after each.
    pub num_mini_batches: u64,
    /// Rows that are generated and scored at once (`local_rollout_forward_batch_size`).
    pub rollout_batch: u64,
    /// Whether rewards are whitened.
    pub whiten_rewards: bool,
    /// How the divergence from the reference is estimated.
    pub kl_estimator: KlEstimator,
    /// Whether answers are cut at the end token (`stop_token`).
    pub stops: bool,
    /// The critic, with one label.
    pub value: ModelSpec,
    /// The model that rewards, with one label.
    pub reward: ModelSpec,
}

/// How the divergence from the reference is estimated (`kl_estimator` of `PPOConfig`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// The difference of log-probabilities.
    K1,
    /// Of lower variance, and of tensors more.
    K3,
}

impl ModelSpec {
    /// Puts a head with one label on it, as reward models and critics have.
    pub(in crate::job) fn become_scorer(&mut self) {
        self.beside.head = Head::SequenceClassification;
        self.beside.counted = None;
        self.config.0.insert("num_labels".to_owned(), 1.into());
        self.config.0.entry("pad_token_id").or_insert(0.into());
    }
}

/// Keys that the trainer has no switch for, or never looks at.
const UNREAD: [(&str, &str); 3] = [
    (keys::GRADIENT_CHECKPOINTING, "PPOTrainer never turns it on, whatever its config says"),
    (keys::CLIP_GRAD_NORM, "PPOTrainer does not clip, whatever its config says"),
    (keys::LOGITS_TO_KEEP, "PPOTrainer keeps all"),
];

impl TaskFacts for PpoSpec {
    fn name(&self) -> TaskName {
        TaskName::Ppo
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::ppo::check_ppo(job, self)
    }

    fn unread_keys(&self) -> &'static [(&'static str, &'static str)] {
        &UNREAD
    }

    fn passes(&self) -> Passes {
        Passes::Accumulated
    }

    fn completion_len(&self) -> Option<u64> {
        Some(self.response_length)
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}
