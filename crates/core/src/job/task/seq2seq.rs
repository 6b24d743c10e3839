//! Training an encoder-decoder on labels (`AutoModelForSeq2SeqLM`), as `Seq2SeqTrainer` does, which trains as `Trainer` does.

use super::{LossOf, Spreading, TaskFacts, TaskName};
use crate::job::{JobError, JobSpec, check};

/// What it needs beside the rows that the encoder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seq2SeqSpec {
    /// Tokens of the labels of a row, which the decoder writes.
    pub target_len: u64,
    /// Whether the encoder, where it is one of recordings, is not trained.
    pub freeze_encoder: bool,
}

impl TaskFacts for Seq2SeqSpec {
    fn name(&self) -> TaskName {
        TaskName::Seq2SeqLm
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        check::seq2seq::check_seq2seq(job, self)
    }

    fn loss(&self) -> LossOf {
        LossOf::MaskedToken
    }

    fn spreading(&self) -> Spreading {
        Spreading::Replicas
    }

    fn takes_adapters(&self) -> bool {
        true
    }
}
