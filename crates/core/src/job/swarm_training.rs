//! What a node of a swarm shares, and what it takes of others. Nothing of it changes a byte of a step.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which of other nodes' groups are trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwarmFilter {
    /// Any, by chance.
    None,
    /// Any whose rewards differ, by chance.
    #[default]
    ZeroAdvantage,
    /// Those that earned most.
    TopReward,
}

/// Which of other nodes' completions are learnt from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForeignAdvantages {
    /// All, as if this node had written them.
    Both,
    /// Those that are better than their group.
    #[default]
    Positive,
}

/// What a node shares, and what it takes of others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwarmTraining {
    /// The folder that nodes share, where it was said.
    pub folder: Option<String>,
    /// The experiment's name.
    pub experiment: String,
    /// Which groups are taken.
    pub filter: SwarmFilter,
    /// Which completions are learnt from.
    pub foreign_advantages: ForeignAdvantages,
    /// Whether each node asks one kind of question, its own.
    pub specialties: bool,
    /// Seconds after which a round ends without those who have not published.
    pub round_seconds: f64,
    /// The share of those who are waited for that ends a round then.
    pub quorum: f64,
    /// Rounds whose files are kept.
    pub keep_rounds: u64,
    /// Rounds between two publications.
    pub publish_every: u64,
    /// MiB of what a node publishes in a round, at most.
    pub max_file_mib: u64,
}

impl SwarmTraining {
    /// [`SwarmTraining::round_seconds`] as a duration.
    pub fn deadline(&self) -> Duration {
        Duration::try_from_secs_f64(self.round_seconds).unwrap_or(Duration::MAX)
    }
}
