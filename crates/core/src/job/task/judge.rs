//! A second model that scores completions: its weights stay, its activations and cache live in the reward phase only.

use serde::{Deserialize, Serialize};

use crate::job::ModelSpec;

/// An evaluator or judge.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeSpec {
    /// The model that scores completions.
    pub model: ModelSpec,
    /// How its weights are stored.
    pub weights: JudgeWeights,
    /// What it does with a completion.
    pub phase: JudgePhase,
    /// Tokens around the prompt and the completion in its input (instructions, template).
    pub extra_prompt_tokens: u64,
    /// Tokens it generates per completion.
    pub new_tokens: u64,
    /// Rows it reads at once; `None` is all of a generation batch.
    pub rows: Option<u64>,
    /// Where it runs.
    pub place: JudgePlace,
}

/// How a judge's weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeWeights {
    /// 4 bytes a weight.
    Fp32,
    /// 2 bytes a weight.
    Bf16,
    /// bitsandbytes `LLM.int8()`
    Int8,
    /// bitsandbytes NF4 in blocks of 64
    Nf4,
}

/// What a judge does with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgePhase {
    /// One forward pass; the last position's logits are the score.
    Forward,
    /// It answers: a prefill and `new_tokens` tokens.
    Generate,
}

/// Where a second model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgePlace {
    /// On the policy's GPU, all the time.
    SameGpu,
    /// On a GPU of its own.
    OtherGpu,
    /// In the host's memory.
    Cpu,
    /// On the policy's GPU while it judges, in the host's memory otherwise.
    Offload,
}
