//! A swarm as GenRL runs it: nodes that share GPUs, each a process that generates for its own questions, takes other
//! nodes' completions as well, and trains on all rows in one pass.

use super::{Passes, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

/// A node's step and the swarm round it. A question comes with a group of completions; a row is one completion.
#[derive(Clone, Debug, PartialEq)]
pub struct SwarmSpec {
    /// Tokens of the prompt.
    pub prompt_len: u64,
    /// Tokens of the completion.
    pub completion_len: u64,
    /// Own questions a round (I).
    pub local_questions: u64,
    /// Other nodes' questions a round (J).
    pub external_questions: u64,
    /// Completions per question (G).
    pub num_generations: u64,
    /// Rows in the one forward and backward pass; (I + J) x G.
    pub train_rows: u64,
    /// Rows per call of `generate`; GenRL makes G calls of I rows.
    pub generate_rows: u64,
    /// How log-probabilities are computed.
    pub log_probs: SwarmLogProbs,
    /// Whether the head computes the completion's logits only.
    pub logits_to_keep: bool,
    /// Whether the node generates at all.
    pub generates: bool,
    /// Whether the cache is emptied at the end of every step, as GenRL does.
    pub empty_cache: bool,
    /// Nodes in the swarm.
    pub nodes: u64,
    /// GPUs they share.
    pub gpus: u64,
    /// How many nodes of a GPU may be between forward and optimizer at once; `None` for all.
    pub lease: Option<u64>,
}

impl TaskFacts for SwarmSpec {
    fn name(&self) -> TaskName {
        TaskName::Swarm
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::trainer::check_swarm(job, self)
    }

    fn passes(&self) -> Passes {
        Passes::Counted("a node trains on its questions times its completions in one pass")
    }

    fn spreading(&self) -> Spreading {
        Spreading::Nodes { nodes: self.nodes, gpus: self.gpus }
    }

    fn rows_per_data_row(&self) -> u64 {
        self.num_generations.max(1)
    }

    fn completion_len(&self) -> Option<u64> {
        Some(self.completion_len)
    }

    fn lease(&self) -> Option<u64> {
        self.lease
    }
}

/// How a node computes log-probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwarmLogProbs {
    /// All logits, one cross-entropy (GenRL).
    Full,
    /// All logits, the cross-entropy in chunks of rows.
    Chunked {
        /// Rows of a chunk.
        rows: u64,
    },
    /// Head and cross-entropy in chunks of rows, made again in backward.
    ChunkedHead {
        /// Rows of a chunk.
        rows: u64,
    },
}
