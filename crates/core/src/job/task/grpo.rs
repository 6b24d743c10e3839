//! GRPO as TRL's `GRPOTrainer` runs it. The names are those of `GRPOConfig`; a row is one completion with its prompt.

use serde::{Deserialize, Serialize};

use super::{JudgePlace, JudgeSpec, Passes, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check, keys};

/// What GRPO needs beyond the policy. `micro_batch_size` is `per_device_train_batch_size`: completions, not prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpoSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of the completion; every row runs to its full length.
    pub completion_len: u64,
    /// Completions per prompt: the group that advantages are normalised over.
    pub num_generations: u64,
    /// Micro-batches generated at once.
    pub steps_per_generation: u64,
    /// Optimizer updates per generated batch.
    pub num_iterations: u64,
    /// What a completion's reward is compared with.
    pub baseline: Baseline,
    /// Weight of the KL term; 0 loads no reference model.
    pub beta: f64,
    /// How log-probabilities are computed.
    pub log_probs: LogProbs,
    /// What generates the completions.
    pub rollout: Rollout,
    /// Whether rows have unequal lengths, so that an attention mask is built.
    pub padded: bool,
    /// Whether the head's output is computed in fp32 (`cast_lm_head_to_fp32`).
    pub cast_lm_head_to_fp32: bool,
    /// A second model that judges the completions.
    pub judge: Option<JudgeSpec>,
}

impl TaskFacts for GrpoSpec {
    fn name(&self) -> TaskName {
        match self.baseline {
            Baseline::Group => TaskName::Grpo,
            Baseline::LeaveOneOut => TaskName::Rloo,
        }
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::trainer::check_grpo(job, self)
    }

    fn unread_keys(&self) -> &'static [(&'static str, &'static str)] {
        match self.baseline {
            Baseline::Group => &[],
            Baseline::LeaveOneOut => &NOT_OF_RLOO,
        }
    }

    fn passes(&self) -> Passes {
        Passes::WholeGroups { group: self.num_generations, steps_per_generation: self.steps_per_generation }
    }

    fn rows_per_data_row(&self) -> u64 {
        self.num_generations.saturating_mul(self.num_iterations).max(1)
    }

    fn completion_len(&self) -> Option<u64> {
        Some(self.completion_len)
    }

    fn spreading(&self) -> Spreading {
        // A judge on a GPU of its own serves one rank.
        if self.more_gpus() > 0 { Spreading::OneRank } else { Spreading::Replicas }
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn more_gpus(&self) -> u64 {
        u64::from(self.judge.as_ref().is_some_and(|judge| judge.place == JudgePlace::OtherGpu))
    }

    fn judge(&self) -> Option<&JudgeSpec> {
        self.judge.as_ref()
    }
}

/// What a completion's reward is compared with, and so whose trainer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The mean of its group: GRPO.
    Group,
    /// The mean of the others of its group: RLOO.
    LeaveOneOut,
}

/// Keys that `RLOOConfig` has no field for, or of which its trainer knows one value.
const NOT_OF_RLOO: [(&str, &str); 2] = [
    (keys::GRPO_LOG_PROBS, "TRL 1.16 fuses head and log-softmax"),
    (keys::GRPO_CAST_LM_HEAD_TO_FP32, "RLOOConfig has no such field"),
];

/// How a trainer turns hidden states into the log-probabilities of the completion's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogProbs {
    /// TRL 1.16: the head and the log-softmax fused, in tiles; logits never exist.
    Fused,
    /// TRL up to 0.25: full logits of the completion, divided by the temperature.
    FullLogits,
}

/// What generates completions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rollout {
    /// `model.generate` with a KV cache that grows by concatenation.
    Generate,
    /// A vLLM engine in the same process (`vllm_mode="colocate"`).
    Vllm {
        /// `vllm_gpu_memory_utilization`: the share of the GPU that the engine takes.
        gpu_memory_utilization: f64,
        /// `vllm_enable_sleep_mode`: weights and cache are released while the policy trains.
        sleep_mode: bool,
    },
}
