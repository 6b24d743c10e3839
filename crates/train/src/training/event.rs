//! What a training tells while it runs.

use std::path::PathBuf;

use tonnage_torch::DeviceMemory;

use crate::grpo::swarm::{SwarmNote, SwarmReport};
use crate::grpo::{EvaluationReport, GrpoReport};
use crate::reasoning::{HrmReport, PuzzleReport};

/// Memory that this process holds. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// By the caching allocator of a GPU.
    Gpu(DeviceMemory),
    /// By the process, at its peak (`VmHWM`), PyTorch's libraries included; `None` where the system does not tell.
    Host(Option<u64>),
}

/// A point of the curve: means since the point before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Steps that are done.
    pub step: u64,
    /// Of so many.
    pub steps: u64,
    /// Epochs that are done, with their share.
    pub epoch: f64,
    /// The mean loss of a token.
    pub loss: f64,
    /// Of the last step.
    pub learning_rate: f64,
    /// Of the last step, before clipping, where gradients are clipped.
    pub grad_norm: Option<f64>,
    /// Steps since the point before that a scaler left out, because gradients overflowed.
    pub skipped: u64,
    /// Since the point before, over all ranks, padding left out.
    pub tokens_per_second: f64,
    /// From the beginning, over all ranks.
    pub tokens_trained: u64,
    /// From the beginning.
    pub seconds: f64,
    /// Until the last step, as fast as lately.
    pub seconds_left: f64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It goes on where a checkpoint stopped.
    Resumed {
        /// Steps that are done.
        step: u64,
        /// The folder of the checkpoint.
        from: PathBuf,
    },
    /// Steps were made.
    Step(StepReport),
    /// The peaks after warm-up: state and a step's activations have all been there.
    Measured(Held),
    /// Held-out text was looked at.
    Evaluated {
        /// Steps that are done.
        step: u64,
        /// The mean loss of a token.
        loss: f64,
        /// From the beginning of the training.
        seconds: f64,
        /// From the beginning, over all ranks.
        tokens_trained: u64,
    },
    /// GRPO made steps.
    Grpo(Box<GrpoReport>),
    /// Held-out questions were asked.
    EvaluatedReward(EvaluationReport),
    /// A node of a swarm is done with a round.
    Round(Box<SwarmReport>),
    /// What is to be known of the swarm.
    Swarm(SwarmNote),
    /// HRM made segments.
    Reasoned(Box<HrmReport>),
    /// Held-out puzzles were answered.
    EvaluatedPuzzles(Box<PuzzleReport>),
    /// Supervised learning from answers is over, and GRPO begins.
    WarmedUp {
        /// Of supervised learning.
        steps: u64,
        /// What completions earn now.
        reward: f64,
        /// From the beginning.
        seconds: f64,
    },
    /// It ends before its last step: nothing became better.
    StoppedEarly {
        /// Steps that are done.
        step: u64,
        /// Evaluations, or epochs of the guide's small GPT, without a lower loss.
        patience: u64,
        /// Whether they are epochs.
        epochs: bool,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// Steps that are done.
        step: u64,
        /// The checkpoint's folder.
        path: PathBuf,
    },
}
