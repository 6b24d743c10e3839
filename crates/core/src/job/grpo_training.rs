//! What GRPO asks, pays and learns by: TRL's `GRPOConfig` of the same names, and what the questions are. Nothing of it changes a byte
//! of a step.

use serde::{Deserialize, Serialize};

/// How the losses of tokens become one (`loss_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossType {
    /// The mean of each completion's mean.
    Grpo,
    /// The mean over the tokens of a micro-batch.
    Bnpo,
    /// Over a constant: rows times `completion_len`.
    DrGrpo,
    /// The mean over the tokens of all micro-batches of a step.
    #[default]
    Dapo,
}

/// What advantages are divided by (`scale_rewards`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRewards {
    /// The deviation of the group's rewards.
    #[default]
    Group,
    /// The deviation of all rewards of the generation batch.
    Batch,
    /// Nothing, as Dr. GRPO.
    None,
}

/// Where a completion has its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerIn {
    /// The whole of it for questions of a few characters, else in the tag.
    #[default]
    Auto,
    /// In the last `<answer>...</answer>`.
    Tag,
    /// The completion is the answer.
    Whole,
}

/// Whether a checker or a judge pays a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardBy {
    /// The kind's exact checker of the completion.
    #[default]
    Verifier,
    /// The judge gives a score from 0 to 10, a tenth of which is paid.
    JudgeScore,
    /// The judge answers in the completion's words, and the checker looks at its answer.
    JudgeAnswer,
}

/// What GRPO asks, pays and learns by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrpoTraining {
    /// Kinds of questions, as likely each.
    pub questions: Vec<String>,
    /// How hard they are, from 1.
    pub question_level: u64,
    /// Where a completion has its answer.
    pub answer_form: AnswerIn,
    /// Whether a checker or a judge pays a completion.
    pub reward: RewardBy,
    /// How far a ratio of probabilities may fall below 1.
    pub epsilon: f64,
    /// How far it may rise above 1.
    pub epsilon_high: f64,
    /// How losses of tokens become one.
    pub loss_type: LossType,
    /// What advantages are divided by.
    pub scale_rewards: ScaleRewards,
    /// Whether groups whose rewards are all the same are drawn anew (DAPO).
    pub dynamic_sampling: bool,
    /// Whether completions without an end teach nothing.
    pub mask_truncated_completions: bool,
    /// Held-out questions of an evaluation.
    pub eval_questions: u64,
    /// Mean reward at which supervised learning from the answers ends and GRPO begins; 0 for none.
    pub warm_start_reward: f64,
    /// Of supervised learning.
    pub warm_start_learning_rate: f64,
    /// Of supervised learning, at most.
    pub warm_start_steps: u64,
}
