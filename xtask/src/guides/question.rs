//! A figure and the command that shows it are one value: a job file of the examples and the keys that are changed.

use std::fs;
use tonnage_core::job::keys;

use anyhow::{Context, Result, anyhow};
use tonnage_core::estimate::{Deployment, Estimate, Fit, SimulatedJob};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{JobSource, Override, Resolved};
use tonnage_core::plan::appraisal::appraise;
use tonnage_core::plan::fit::{GpuVerdict, verdicts_on};
use tonnage_core::plan::time::{Bill, Scale};
use tonnage_core::work::Work;

/// A job file with some keys changed.
#[derive(Clone)]
pub struct Question {
    file: &'static str,
    changes: Vec<(&'static str, String)>,
}

/// What it needs.
pub struct Answer {
    /// Of its process.
    pub estimate: Estimate,
    /// Of its processes on their GPUs.
    pub deployment: Deployment,
}

impl Question {
    /// The job of `file` as it stands.
    pub const fn of(file: &'static str) -> Self {
        Self { file, changes: Vec::new() }
    }

    /// With `key` set to `value`, in place of what it was set to before.
    pub fn with(&self, key: &'static str, value: impl ToString) -> Self {
        let mut changed = self.clone();
        changed.changes.retain(|(set, _)| *set != key);
        changed.changes.push((key, value.to_string()));
        changed
    }

    /// The command that shows the same figures.
    pub fn command(&self) -> String {
        let mut command = format!("tonnage estimate {}", self.file);
        for (key, value) in &self.changes {
            let flag = Override::flag(key, value).origin.said();
            let part = match value.as_str() {
                _ if *key == keys::MODEL || key.starts_with("model.") => format!("--set {key}={value}"),
                "true" | "false" => format!("{flag}={value}"),
                _ => format!("{flag} {value}"),
            };
            command = format!("{command} {part}");
        }
        command
    }

    pub fn answer(&self) -> Result<Answer> {
        let resolved = self.resolve()?;
        let simulated = SimulatedJob::new(&resolved.job).with_context(|| self.command())?;
        let estimate = simulated.estimate()?;
        let deployment = Deployment::new(&simulated, estimate.clone())?;
        Ok(Answer { estimate, deployment })
    }

    /// What it computes.
    pub fn work(&self) -> Result<Work> {
        let resolved = self.resolve()?;
        Ok(SimulatedJob::new(&resolved.job).with_context(|| self.command())?.work().clone())
    }

    /// What it costs on `gpu`, which must be one of known rates.
    pub fn bill(&self, gpu: &Gpu) -> Result<Bill> {
        let appraisal = appraise(&self.resolve()?.job, gpu, Scale::Estimated).with_context(|| self.command())?;
        appraisal.bill.with_context(|| format!("no rates of {}", gpu.id))
    }

    /// Judges it on each of `gpus`.
    pub fn verdicts(&self, gpus: &[Gpu]) -> Result<Vec<GpuVerdict>> {
        let answers = verdicts_on(&self.resolve()?.job, gpus);
        answers.into_iter().map(|answer| answer.with_context(|| self.command())).collect()
    }

    pub fn resolve(&self) -> Result<Resolved> {
        let text = fs::read_to_string(self.file).with_context(|| self.file)?;
        let overrides: Vec<_> = self.changes.iter().map(|(key, value)| Override::flag(key, value)).collect();
        let resolved = JobSource::from_file(self.file, text).resolve(&overrides);
        resolved.map_err(|error| anyhow!("{}: {error}", self.command()))
    }
}

impl Answer {
    /// What the fullest GPU carries, contexts included.
    pub fn total(&self) -> u64 {
        self.deployment.fullest().map_or(self.estimate.total_bytes, |gpu| gpu.total_bytes)
    }

    /// How many processes fit on one GPU if at most `lease` of them train at once.
    pub fn room(&self, lease: Option<u64>) -> u64 {
        self.deployment.room.iter().find(|room| room.lease == lease).map_or(0, |room| room.processes)
    }
}

/// The catalog's GPUs of these names.
pub fn gpus(names: &[&str]) -> Result<Vec<Gpu>> {
    names.iter().map(|name| Gpu::parse(name).map_err(|error| anyhow!("{error}"))).collect()
}

/// A verdict as a word.
pub const fn word(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "fits",
        Fit::Tight => "tight",
        Fit::NotKnown => "not known",
        Fit::DoesNotFit => "does not fit",
    }
}

/// The largest of `sizes` (ascending) for which `question` fits, if any does; by bisection.
pub fn largest_fitting(sizes: &[u64], question: impl Fn(u64) -> Question) -> Result<Option<u64>> {
    let (mut low, mut high) = (0, sizes.len());
    while low < high {
        let middle = low.midpoint(high);
        if question(sizes[middle]).answer()?.deployment.fit() == Fit::Fits {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low.checked_sub(1).map(|last| sizes[last]))
}
