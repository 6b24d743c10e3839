//! What a training by GRPO tells.

use tonnage_core::job::keys;

use super::pay::Pay;

/// A point of the curve: means since the point before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GrpoReport {
    /// Optimizer steps that are done.
    pub step: u64,
    /// Of so many.
    pub steps: u64,
    /// As the optimizer had it.
    pub loss: f64,
    /// Of the last step.
    pub learning_rate: f64,
    /// Of the last step, before clipping.
    pub grad_norm: Option<f64>,
    /// What completions earned.
    pub pay: Pay,
    /// Tokens of a completion, its end included.
    pub completion_tokens: f64,
    /// The share of completions that were cut off.
    pub truncated: f64,
    /// Nats, over all tokens that count.
    pub entropy: f64,
    /// Divergence from the reference, where there is one.
    pub kl: Option<f64>,
    /// The share of ratios that were clipped.
    pub clipped: f64,
    /// Groups drawn anew because their rewards were all the same.
    pub redrawn_groups: f64,
    /// From the beginning.
    pub tokens_generated: u64,
    /// From the beginning: tokens of completions, as often as they were trained on.
    pub tokens_trained: u64,
    /// From the beginning.
    pub seconds_sampling: f64,
    /// From the beginning.
    pub seconds_training: f64,
    /// From the beginning, evaluations and checkpoints included.
    pub seconds: f64,
    /// Until the last step, as fast as lately.
    pub seconds_left: f64,
}

impl GrpoReport {
    /// All numbers by their names in `metrics.jsonl`; TRL's where it has the like.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("loss", self.loss),
            (keys::LEARNING_RATE, self.learning_rate),
            ("reward", self.pay.mean),
            ("reward_std", self.pay.deviation),
            ("reward_group_variance", self.pay.group_variance),
            ("frac_reward_zero_std", self.pay.dead_groups),
            ("reward_floor", self.pay.floor),
            ("frac_reward_at_floor", self.pay.at_floor),
            ("completions/mean_length", self.completion_tokens),
            ("completions/clipped_ratio", self.truncated),
            ("entropy", self.entropy),
            ("clip_ratio", self.clipped),
            ("redrawn_groups", self.redrawn_groups),
            ("tokens_generated", self.tokens_generated as f64),
            ("seconds_sampling", self.seconds_sampling),
            ("seconds_training", self.seconds_training),
        ];
        all.extend(self.grad_norm.map(|norm| ("grad_norm", norm)));
        all.extend(self.kl.map(|kl| ("kl", kl)));
        all
    }
}

/// What held-out questions earned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationReport {
    /// Optimizer steps that are done.
    pub step: u64,
    /// How many questions.
    pub questions: u64,
    /// Of the likeliest completion.
    pub greedy: f64,
    /// Of a completion that was drawn as in training.
    pub sampled: f64,
    /// From the beginning.
    pub seconds: f64,
    /// From the beginning.
    pub tokens_trained: u64,
}
