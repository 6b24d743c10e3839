//! [`Node`]: a process of a run, and where it is between waiting and its end.

use std::time::Instant;

use tonnage_core::record::{AttemptRecord, ExitRecord, FailureRecord, Outcome};

use super::running::Running;
use crate::guard::AttemptPlan;

/// A node, with what was tried for it.
#[derive(Default)]
pub(super) struct Node {
    pub attempts: Vec<AttemptRecord>,
    pub failures: Vec<FailureRecord>,
    pub stage: Stage,
    pub exit: ExitRecord,
    pub lost_seconds: f64,
    pub reason: String,
}

impl Node {
    /// The processes that keep its command, while it runs.
    pub fn keepers(&self) -> Vec<i32> {
        match &self.stage {
            Stage::Running(running) => running.process.keeper_pids().collect(),
            _ => Vec::new(),
        }
    }
}

/// Where a node is.
#[derive(Default)]
pub(super) enum Stage {
    /// To be started then.
    Waiting(Instant, Box<AttemptPlan>),
    Running(Box<Running>),
    Ended(Outcome),
    /// On its way from one to the other.
    #[default]
    Between,
}
