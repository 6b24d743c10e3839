//! GRPO as TRL's `GRPOTrainer` runs it (trl 1.16), over verifiable questions: completions are generated in groups, paid, and trained on,
//! with TRL's statements in TRL's order, so that what it allocates is what `tonnage estimate` says of `task = "grpo"`
//! (core/src/step/grpo mirrors the same functions).
//!
//! `Asker` draws questions -> `generate` samples -> `Rollout` on the host -> `pay` -> `Batch` on the device -> `loss`.

mod asker;
mod batch;
mod evaluate;
mod generate;
mod judge;
mod logps;
mod loss;
mod pay;
mod policy;
mod program;
mod report;
mod rollout;
mod saved;
mod settings;
pub mod swarm;
mod tensors;
mod trainer;
mod update;
mod warm_start;

pub use loss::{LossTerms, grpo_loss};
pub use program::GrpoReady;
pub use report::{EvaluationReport, GrpoReport};
pub use settings::GrpoSettings;
