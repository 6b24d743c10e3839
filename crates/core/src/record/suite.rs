//! What is shown of a suite whose runs live: made by whoever keeps suites, shown by whoever has a screen.

/// Where the runs of a suite are, and what is next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteSummary {
    /// As its file calls it.
    pub name: String,
    /// Whether a runner has it, which starts what is next.
    pub is_run: bool,
    /// Why nothing more is started.
    pub paused: Option<String>,
    /// Runs that are done.
    pub succeeded: usize,
    /// Runs that failed, or were refused.
    pub failed: usize,
    /// Runs that are to be started.
    pub waiting: usize,
    /// Runs in SLURM's queue.
    pub queued: usize,
    /// Runs that were sent to SLURM, and of which nobody knows where they are.
    pub unknown: usize,
    /// Why nothing is known of them, where SLURM does not answer.
    pub silence: Option<String>,
    /// Until all is done, in seconds, where that can be said.
    pub seconds_left: Option<f64>,
    /// Runs that have not ended.
    pub running: Vec<SuiteRun>,
    /// What is started next, by name.
    pub next: Vec<String>,
}

/// A run of a suite that has not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteRun {
    /// Configuration and seed.
    pub name: String,
    /// Its folder's name, by which `tonnage status` knows it; on SLURM its job.
    pub run: String,
    /// What its `CUDA_VISIBLE_DEVICES` names.
    pub gpus: Vec<String>,
    /// Its nodes, where it runs on SLURM.
    pub nodes: Option<String>,
    /// Seconds since it was started, where that is known.
    pub seconds: Option<f64>,
}
