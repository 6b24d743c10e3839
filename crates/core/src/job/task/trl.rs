//! Versions of TRL, and what their trainers' configs default to: `GRPOConfig`, `DPOConfig`, and the `TrainingArguments`
//! of the transformers that came with them.

use crate::job::keys;
use serde::{Deserialize, Serialize};

use super::TaskName;

/// A version of TRL whose source was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrlVersion {
    /// 0.17, with transformers 4.51.
    #[serde(rename = "0.17")]
    V0_17,
    /// 0.25, with transformers 4.57.
    #[serde(rename = "0.25")]
    V0_25,
    /// 1.16, with transformers 5.17.
    #[serde(rename = "1.16")]
    V1_16,
}

/// A key, and its default as JSON.
type Row = (&'static str, &'static str);

/// What `TrainingArguments` and every trainer of TRL share: Trainer's `max_grad_norm`, the lengths a prompt is cut to.
const SHARED: [Row; 2] = [(keys::CLIP_GRAD_NORM, "1.0"), (keys::PROMPT_LEN, "512")];
/// `bf16` over fp32 weights, checkpointing, and PyTorch's fused AdamW.
const MODERN: [Row; 3] =
    [(keys::PRECISION, "\"amp-bf16\""), (keys::GRADIENT_CHECKPOINTING, "true"), (keys::OPTIMIZER, "\"adamw_fused\"")];

impl TrlVersion {
    /// As `trl` says it: `0.25`, `1.16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0_17 => "0.17",
            Self::V0_25 => "0.25",
            Self::V1_16 => "1.16",
        }
    }

    /// The defaults of the task's config where they are not those of a plain loop.
    pub(in crate::job) fn defaults(self, task: TaskName) -> Vec<Row> {
        let rows: &[Row] = match (task, self) {
            (TaskName::Grpo, Self::V0_17) => {
                &[(keys::COMPLETION_LEN, "256"), (keys::GRPO_BETA, "0.04"), (keys::GRPO_LOG_PROBS, "\"full_logits\"")]
            }
            (TaskName::Grpo, Self::V0_25) => {
                &[(keys::COMPLETION_LEN, "256"), (keys::GRPO_BETA, "0.0"), (keys::GRPO_LOG_PROBS, "\"full_logits\"")]
            }
            (TaskName::Grpo, Self::V1_16) => {
                &[(keys::COMPLETION_LEN, "512"), (keys::GRPO_BETA, "0.0"), (keys::GRPO_LOG_PROBS, "\"fused\"")]
            }
            // `max_length` is 1024: prompt and answer together.
            _ => &[(keys::COMPLETION_LEN, "512")],
        };
        let modern: &[Row] = if self == Self::V0_17 { &[] } else { &MODERN };
        [&SHARED, modern, rows].concat()
    }
}
