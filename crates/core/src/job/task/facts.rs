//! [`TaskFacts`]: what the rest of the program asks of a task. A task answers in its own file; what it does not answer is as in
//! plain training of a language model.

use super::{JudgeSpec, TaskName};
use crate::gpu::Gpu;
use crate::job::{JobError, JobSpec};

/// How the rows of an optimizer step are divided into passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// Any number of passes, whose gradients accumulate.
    Accumulated,
    /// The same, of batches that are generated in whole groups.
    WholeGroups {
        /// Rows of a group.
        group: u64,
        /// Micro-batches that are generated at once.
        steps_per_generation: u64,
    },
    /// One pass: fewer rows are another effective batch. The reason, as a clause.
    One(&'static str),
    /// One pass, of rows that the task itself counts. The reason, as a clause.
    Counted(&'static str),
}

/// What more GPUs do for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spreading {
    /// Ranks under any wrapper; accumulation makes up for rows that do not divide.
    Ranks,
    /// Ranks of a trainer that gathers what it logs: under DDP, and where they learn preferences in shards.
    Replicas,
    /// Ranks that reduce their gradients themselves, each in one pass.
    OwnRanks,
    /// Nodes, each a process of its own, dealt to GPUs.
    Nodes {
        /// Nodes of the swarm.
        nodes: u64,
        /// On how many GPUs.
        gpus: u64,
    },
    /// Nothing: it is simulated on one rank.
    OneRank,
}

/// Whose loss it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOf {
    /// The model's own, from labels of the next token.
    NextToken,
    /// The model's own, from labels of masked tokens.
    MaskedToken,
    /// The model's own, from classes of rows or tokens.
    Class,
    /// The trainer's, from logits or hidden states.
    Trainer,
    /// There is none.
    Nobody,
}

/// What a task's program does with a quantized base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizedBase {
    /// It is not simulated.
    Refused,
    /// It trains adapters on the base as it was loaded.
    AsLoaded,
    /// It calls peft's `prepare_model_for_kbit_training` itself, and leaves adapters in fp32.
    Prepared,
}

/// What is known of a kind of task.
pub trait TaskFacts {
    /// Its name in job files.
    fn name(&self) -> TaskName;

    /// What its program is called in sentences.
    fn program(&self) -> &'static str {
        "the trainer"
    }

    /// Refuses a job that the task's program would refuse.
    ///
    /// # Errors
    /// With the key, and the way out.
    fn check(&self, _job: &JobSpec) -> Result<(), JobError> {
        Ok(())
    }

    /// Keys that the task's program has no switch for, each with the reason as a clause.
    fn unread_keys(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whose loss it trains on.
    fn loss(&self) -> LossOf {
        LossOf::Trainer
    }

    /// How rows become passes.
    fn passes(&self) -> Passes {
        Passes::Accumulated
    }

    /// What more GPUs do.
    fn spreading(&self) -> Spreading {
        Spreading::OneRank
    }

    /// Whether preferences between answers are learned, without generating any.
    fn learns_preferences(&self) -> bool {
        false
    }

    /// How often a row of the data set comes up among the rows trained on: a prompt may have several completions.
    fn rows_per_data_row(&self) -> u64 {
        1
    }

    /// Tokens of a completion, where rows are prompts and completions.
    fn completion_len(&self) -> Option<u64> {
        None
    }

    /// The key by which a reference's log-probabilities are computed before training, and whether they are.
    fn precomputed_reference(&self) -> Option<(&'static str, bool)> {
        None
    }

    /// Whether `lora` may be set.
    fn takes_adapters(&self) -> bool {
        false
    }

    /// What becomes of a quantized base.
    fn quantized_base(&self) -> QuantizedBase {
        QuantizedBase::Refused
    }

    /// GPUs taken beside those of its ranks.
    fn more_gpus(&self) -> u64 {
        0
    }

    /// Most processes on one of its GPUs.
    fn processes_per_gpu(&self) -> u64 {
        match self.spreading() {
            Spreading::Nodes { nodes, gpus } => nodes.div_ceil(gpus.max(1)),
            _ => 1,
        }
    }

    /// How many processes of a GPU may train at once; `None` for all.
    fn lease(&self) -> Option<u64> {
        None
    }

    /// A second model that judges what the first one writes.
    fn judge(&self) -> Option<&JudgeSpec> {
        None
    }

    /// What its own program is told for a key, where it has an argument of its own; `ranks` is the number of processes.
    fn own_argument(&self, _key: &str, _value: u64, _ranks: u64) -> Option<String> {
        None
    }

    /// What an answer for `gpu` must say beside its figures: a code and a sentence.
    fn remarks(&self, _gpu: &Gpu) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}
