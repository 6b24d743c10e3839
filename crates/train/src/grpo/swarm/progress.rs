//! How far a node is, as its checkpoint holds it.

use serde::{Deserialize, Serialize};

use crate::store::numbers::Numbers;

/// Counts from the beginning; a round that went by without this node is in none of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// What must be the same to go on.
    pub words: String,
    pub name: String,
    /// The sum over rounds of the mean reward of the node's own completions.
    pub cumulative: f64,
    /// The same of all nodes, as they published it.
    pub swarm_cumulative: f64,
    pub updates: u64,
    pub tokens_generated: u64,
    pub tokens_trained: u64,
    pub ignored_files: u64,
    pub refused_groups: u64,
    pub cut: u64,
    pub lost_rounds: u64,
    pub seconds_sampling: f64,
    pub seconds_training: f64,
    pub seconds_waiting: f64,
}

impl Numbers for Progress {
    const FILE: &'static str = "swarm_state.json";

    fn words(&self) -> &str {
        &self.words
    }
}
