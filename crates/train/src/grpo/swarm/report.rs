//! What a node of a swarm tells.

use tonnage_core::job::keys;

/// A round of a node. Rewards are means over completions, as the paper's are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwarmReport {
    /// Rounds that are done.
    pub step: u64,
    /// Of so many.
    pub steps: u64,
    /// Of the update; `None` where nothing was learnt from.
    pub loss: Option<f64>,
    /// Of the last update.
    pub learning_rate: f64,
    /// What its own completions of fresh questions earned.
    pub on_policy: f64,
    /// What all completions earned that it trained on, others' included.
    pub training_set: f64,
    /// The sum over its rounds of what its completions earned.
    pub cumulative: f64,
    /// The sum over nodes and rounds, as far as this node saw them published.
    pub swarm_cumulative: f64,
    /// The mean over groups of the variance within.
    pub group_variance: f64,
    /// The lowest reward that was paid, and the share of completions that got it.
    pub floor: f64,
    /// The share of completions that got it.
    pub at_floor: f64,
    /// Own groups, and those whose rewards differ.
    pub groups: u64,
    /// Own groups whose rewards differ.
    pub live_groups: u64,
    /// Groups of others that could be chosen, and that were.
    pub pool: u64,
    /// Groups of others that were trained on.
    pub chosen: u64,
    /// Tokens of an own completion, its end included.
    pub completion_tokens: f64,
    /// The share of own completions that were cut off.
    pub truncated: f64,
    /// Files that were late, torn, too large, changed or misplaced, from the beginning.
    pub ignored_files: u64,
    /// Groups that were refused, from the beginning.
    pub refused_groups: u64,
    /// Foreign completions cut to this node's length, from the beginning.
    pub cut: u64,
    /// Rounds that went by without this node, from the beginning.
    pub lost_rounds: u64,
    /// Updates, from the beginning.
    pub updates: u64,
    /// From the beginning.
    pub tokens_generated: u64,
    /// From the beginning.
    pub tokens_trained: u64,
    /// From the beginning.
    pub seconds_sampling: f64,
    /// From the beginning.
    pub seconds_training: f64,
    /// From the beginning: for others.
    pub seconds_waiting: f64,
    /// From the beginning.
    pub seconds: f64,
    /// Until the last round, by the median of the last ones.
    pub seconds_left: f64,
}

impl SwarmReport {
    /// All numbers by their names in `metrics.jsonl`.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            (keys::LEARNING_RATE, self.learning_rate),
            ("reward", self.on_policy),
            ("reward/on_policy", self.on_policy),
            ("reward/training_set", self.training_set),
            ("reward/cumulative", self.cumulative),
            ("reward/swarm_cumulative", self.swarm_cumulative),
            ("reward_group_variance", self.group_variance),
            ("reward_floor", self.floor),
            ("frac_reward_at_floor", self.at_floor),
            ("groups", self.groups as f64),
            ("groups_with_variance", self.live_groups as f64),
            ("pool_groups", self.pool as f64),
            ("chosen_groups", self.chosen as f64),
            ("completions/mean_length", self.completion_tokens),
            ("completions/clipped_ratio", self.truncated),
            ("ignored_files", self.ignored_files as f64),
            ("refused_groups", self.refused_groups as f64),
            ("cut_completions", self.cut as f64),
            ("lost_rounds", self.lost_rounds as f64),
            ("updates", self.updates as f64),
            ("seconds_sampling", self.seconds_sampling),
            ("seconds_training", self.seconds_training),
            ("seconds_waiting", self.seconds_waiting),
        ];
        all.extend(self.loss.map(|loss| ("loss", loss)));
        all
    }
}

/// What is to be known of a swarm, said once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwarmNote {
    /// This node takes part.
    Joined {
        /// As files of the shared folder are called.
        name: String,
        /// The first that it publishes in, from 0.
        round: u64,
        /// Kinds of questions, between commas.
        asks: String,
    },
    /// Other nodes have the same weights to the bit: they are one model.
    Identical {
        /// As files of the shared folder are called.
        others: Vec<String>,
        /// When it was first seen, from 0.
        round: u64,
    },
    /// There are fewer groups of others than are to be trained on: every node takes all of them.
    SmallPool {
        /// Groups that could be chosen.
        pool: u64,
        /// Groups that were wanted.
        wanted: u64,
        /// When it was first seen, from 0.
        round: u64,
    },
    /// A round was decided without these.
    Missing {
        /// As files of the shared folder are called.
        names: Vec<String>,
        /// From 0.
        round: u64,
    },
}
