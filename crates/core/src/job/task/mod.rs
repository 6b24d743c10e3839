//! What is run: the tasks, and what each needs to know beyond the model and the sizes that all share.

mod causal_lm;
mod dpo;
mod facts;
mod grpo;
mod hrm;
mod inference;
mod judge;
mod masked_lm;
mod swarm;
mod trl;

use serde::{Deserialize, Serialize};

pub use dpo::DpoSpec;
pub use facts::{LossOf, Passes, Spreading, TaskFacts};
pub use grpo::{GrpoSpec, LogProbs, Rollout};
pub use judge::{JudgePhase, JudgePlace, JudgeSpec, JudgeWeights};
pub use swarm::{SwarmLogProbs, SwarmSpec};
pub use trl::TrlVersion;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Next-token training with labels.
    CausalLm,
    /// Masked-token training with labels (BERT).
    MaskedLm,
    /// One forward pass without gradients.
    InferenceForward,
    /// `generate` with a KV cache.
    Generate,
    /// TRL's `GRPOTrainer`: rollout, reward, log-probabilities, training in turn.
    Grpo(Box<GrpoSpec>),
    /// TRL's `DPOTrainer`: a policy and its reference on chosen and rejected answers.
    Dpo(Box<DpoSpec>),
    /// A node of a swarm: generates, scores and trains on its own and other nodes' completions.
    Swarm(Box<SwarmSpec>),
    /// One segment of the hierarchical reasoning model's adaptive computation.
    Hrm,
}

impl Task {
    /// What is known of its kind: the one place where a task is told from another.
    pub fn facts(&self) -> &dyn TaskFacts {
        match self {
            Self::CausalLm => &causal_lm::CausalLm,
            Self::MaskedLm => &masked_lm::MaskedLm,
            Self::InferenceForward => &inference::InferenceForward,
            Self::Generate => &inference::Generate,
            Self::Grpo(grpo) => grpo.as_ref(),
            Self::Dpo(dpo) => dpo.as_ref(),
            Self::Swarm(swarm) => swarm.as_ref(),
            Self::Hrm => &hrm::Hrm,
        }
    }

    /// Whether the task runs backward and an optimizer.
    pub fn trains(&self) -> bool {
        self.facts().loss() != LossOf::Nobody
    }

    /// Its name in job files.
    pub fn name(&self) -> TaskName {
        self.facts().name()
    }

    /// What only GRPO has.
    pub const fn grpo(&self) -> Option<&GrpoSpec> {
        match self {
            Self::Grpo(grpo) => Some(grpo),
            _ => None,
        }
    }

    /// What only DPO has.
    pub const fn dpo(&self) -> Option<&DpoSpec> {
        match self {
            Self::Dpo(dpo) => Some(dpo),
            _ => None,
        }
    }

    /// What only a swarm has.
    pub const fn swarm(&self) -> Option<&SwarmSpec> {
        match self {
            Self::Swarm(swarm) => Some(swarm),
            _ => None,
        }
    }
}

impl From<GrpoSpec> for Task {
    fn from(grpo: GrpoSpec) -> Self {
        Self::Grpo(Box::new(grpo))
    }
}

impl From<DpoSpec> for Task {
    fn from(dpo: DpoSpec) -> Self {
        Self::Dpo(Box::new(dpo))
    }
}

impl From<SwarmSpec> for Task {
    fn from(swarm: SwarmSpec) -> Self {
        Self::Swarm(Box::new(swarm))
    }
}

/// A task's name in job files and reference cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskName {
    /// [`Task::CausalLm`]
    CausalLm,
    /// [`Task::MaskedLm`]
    MaskedLm,
    /// [`Task::InferenceForward`]
    InferenceForward,
    /// [`Task::Generate`]
    Generate,
    /// [`Task::Grpo`]
    Grpo,
    /// [`Task::Dpo`]
    Dpo,
    /// [`Task::Swarm`]
    Swarm,
    /// [`Task::Hrm`]
    Hrm,
}
