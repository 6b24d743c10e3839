//! [`RunRecord`]: what was asked for, written once when a run is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::keys::{GPU, TRANSFORMERS};
use crate::job::{JobSource, JobText, LeftOpen, Origin, Override, Resolved, UnnamedGpu};

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// [`super::FORMAT`] of the writer.
    pub format: u32,
    /// The version of Tonnage that wrote it.
    pub written_by: String,
    /// The run's name in commands; its folder is called so.
    pub id: String,
    /// When it was made, in milliseconds since 1970 (UTC), by the clock of that time.
    pub created_ms: u64,
    /// Its number among the runs of its home, which no clock can set back; 0 of versions that did not count.
    pub sequence: u64,
    /// The command, templates unfilled.
    pub command: Vec<String>,
    /// The folder it runs in.
    pub folder: String,
    /// Of the environment, the variables that say what may be recorded; never another.
    pub environment: BTreeMap<String, String>,
    /// The job, if one was given.
    pub job: Option<JobRecord>,
    /// The processes to start; one without a role, or a swarm's nodes.
    pub nodes: Vec<NodeRecord>,
    /// How it is to be kept alive.
    pub policy: Policy,
}

/// A job as it was given, and what it came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobRecord {
    /// The name of the job file.
    pub file: Option<String>,
    /// Its text at that time.
    pub text: Option<String>,
    /// Flags and assignments: key, value, flag.
    pub overrides: Vec<(String, String, String)>,
    /// Every value with its origin.
    pub values: Vec<ValueRecord>,
    /// What no key can say of it.
    pub left_open: Vec<LeftOpen>,
}

/// A value of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValueRecord {
    /// As [`KEYS`](crate::job::KEYS) names it.
    pub key: String,
    /// Its value, as a job file says it.
    pub value: String,
    /// Where it came from (`job.toml:3`, `default`).
    pub origin: String,
}

impl JobRecord {
    /// The record of the job that `source` came to. What was found on the machine is recorded as if it had been said, so
    /// that the record means the same elsewhere.
    pub fn new(source: &JobSource, resolved: &Resolved) -> Self {
        let value = |value: &crate::job::Provenance| ValueRecord {
            key: value.key.clone(),
            value: value.value.clone(),
            origin: value.origin.to_string(),
        };
        let installed = match resolved.origin(TRANSFORMERS) {
            Some(origin @ Origin::Installed(_)) => {
                Some(Override::new(TRANSFORMERS, resolved.job.transformers, origin.clone()))
            }
            _ => None,
        };
        let found = match &source.unnamed_gpu {
            UnnamedGpu::Found { gpu, origin } if resolved.origin(GPU) == Some(origin) => {
                Some(Override::new(GPU, gpu.written(), origin.clone()))
            }
            _ => None,
        };
        let overrides = installed.into_iter().chain(found).chain(source.written_overrides());
        Self {
            file: source.file.as_ref().map(|file| file.name.clone()),
            text: source.file.as_ref().map(|file| file.text.clone()),
            overrides: overrides.map(|given| (given.key, given.value, given.origin.said())).collect(),
            values: resolved.provenance.iter().map(value).collect(),
            left_open: source.left_open.clone(),
        }
    }

    /// The job again, as far as the record says it: configs are not recorded.
    pub fn source(&self) -> JobSource {
        let given =
            |(key, value, flag): &(String, String, String)| Override::new(key, value, Origin::Flag(flag.clone()));
        let file = self.file.clone().zip(self.text.clone()).map(|(name, text)| JobText { name, text });
        let overrides = self.overrides.iter().map(given).collect();
        JobSource { file, overrides, left_open: self.left_open.clone(), ..JobSource::default() }
    }
}

/// A process of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRecord {
    /// Its label in logs; empty for a run's only process.
    pub name: String,
    /// What it does in a swarm (`node`, `coordinator`).
    pub role: String,
    /// As the driver counts, from 0.
    pub index: u64,
    /// The seed it is told.
    pub seed: u64,
    /// The GPU it is put on, by index or UUID; `None` leaves the choice to the command.
    pub gpu: Option<String>,
}

/// How a run is kept alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// How often the command is started at most, for each node.
    pub max_attempts: u32,
    /// No attempt begins after this many seconds.
    pub max_seconds: Option<u64>,
    /// The least micro-batch that is tried.
    pub min_micro_batch: u64,
    /// Seconds between asking processes to end and ending them.
    pub grace_seconds: u64,
    /// Seconds without output and without work after which a process counts as hung; `None` never.
    pub stall_seconds: Option<u64>,
    /// Seconds within which a crash is a failure to start.
    pub startup_seconds: u64,
    /// Seconds between the starts of two nodes.
    pub stagger_seconds: u64,
    /// Seconds a neighbour on the GPU is waited for.
    pub wait_seconds: u64,
    /// Whether the batch may be changed at the same effective batch.
    pub adjusts: bool,
    /// Whether remedies that change the training may be taken.
    pub changes_training: bool,
    /// Whether it starts although it is predicted not to fit.
    pub forced: bool,
    /// Where checkpoints are, if the command does not say.
    pub checkpoints: Option<String>,
    /// The GPU's capacity in bytes, where the caller knows better than the job.
    pub capacity_bytes: Option<u64>,
    /// How many nodes of a GPU may hold the lease for backward at once.
    pub lease: Option<u64>,
    /// Whether others may read the run's folder.
    pub shared: bool,
    /// Whether Python tells the allocator's peaks at its end without being asked by the script.
    pub observes: bool,
    /// The run ends when its log has said so many steps: a probe.
    pub stop_after_steps: Option<u64>,
    /// The run ends after so many seconds, steps or not: a probe.
    pub max_run_seconds: Option<u64>,
    /// By how many bytes more than calculated runs like this one were seen to need of a GPU.
    pub seen_more_bytes: u64,
    /// By how many less.
    pub seen_less_bytes: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            max_seconds: None,
            min_micro_batch: 1,
            grace_seconds: 30,
            stall_seconds: None,
            startup_seconds: 60,
            stagger_seconds: 0,
            wait_seconds: 600,
            adjusts: true,
            changes_training: false,
            forced: false,
            checkpoints: None,
            capacity_bytes: None,
            lease: None,
            shared: false,
            observes: false,
            stop_after_steps: None,
            max_run_seconds: None,
            seen_more_bytes: 0,
            seen_less_bytes: 0,
        }
    }
}
