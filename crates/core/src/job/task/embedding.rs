//! Embeddings of texts as sentence-transformers' trainer trains them: anchors and what they are to be near, in one batch whose other rows
//! are what they are to be far from.

use serde::{Deserialize, Serialize};

use super::{Passes, TaskFacts, TaskName};
use crate::job::keys;
use crate::job::{JobError, JobSpec, check};

/// What training embeddings needs to be told. `micro_batch_size` counts anchors; positives and negatives are `seq_len` tokens long.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// Tokens of an anchor.
    pub anchor_len: u64,
    /// Hard negatives of each anchor.
    pub negatives: u64,
    /// What is made of the states of a text's tokens.
    pub pooling: Pooling,
    /// Whether embeddings are made one long behind it (`Normalize`).
    pub normalize: bool,
    /// Rows that are embedded at once by the cached loss (GradCache); `None` without it.
    pub mini_batch_size: Option<u64>,
}

/// How the states of tokens become one (`pooling_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The mean of all that are no padding.
    Mean,
    /// The state of the first token.
    Cls,
    /// The state of the last token that is no padding.
    Lasttoken,
}

impl TaskFacts for EmbeddingSpec {
    fn name(&self) -> TaskName {
        TaskName::Embedding
    }

    fn program(&self) -> &'static str {
        "sentence-transformers' trainer"
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::embedding::check_embedding(job, self)
    }

    fn passes(&self) -> Passes {
        Passes::One("each anchor is told from the other rows of its pass: fewer rows in it are another loss")
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn unread_keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (keys::USE_CACHE, "sentence-transformers turns the cache off"),
            (keys::LOGITS_TO_KEEP, "the model has no head"),
            (keys::LOSS, "the loss is of embeddings"),
            (keys::KEEP_OUTPUTS, "the loss is of embeddings"),
            (keys::TRAIN_MODE, "a Trainer's model is always in training mode"),
            (keys::ZERO_GRAD_SET_TO_NONE, "a Trainer always sets gradients to none"),
        ]
    }
}
