//! A suite as files for those who run it elsewhere. An engine is a file here and a line in [`ENGINES`]. No name and no value
//! reaches a shell unquoted, none reaches a directive unchecked.

mod compose;
mod kubernetes;
mod launcher;
mod quoted;
mod skypilot;
pub mod slurm;
mod yaml;

pub use quoted::{cases, word};

use std::path::Path;
use tonnage_core::small_sort::SmallSort;

use crate::file::{Elsewhere, Limits};
use crate::pack::Machine;
use crate::plan::{Plan, Predicted};

/// A scheduler, or another program that runs containers.
pub struct Engine {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub doc: &'static str,
    pub render: fn(&Rendering<'_>) -> Result<Vec<Rendered>, String>,
}

/// What `suite render` can write for, in the order of the help.
pub const ENGINES: &[Engine] = &[slurm::ENGINE, compose::ENGINE, kubernetes::ENGINE, skypilot::ENGINE];

/// What is rendered.
pub struct Rendering<'a> {
    pub plan: &'a Plan,
    /// The words of every run of the plan, all names filled in.
    pub commands: &'a [Vec<String>],
    /// What schedulers are told.
    pub elsewhere: &'a Elsewhere,
    /// Limits of a job.
    pub limits: &'a Limits,
    /// Seconds that a checkpoint may take.
    pub grace_seconds: u64,
    /// The machine that runs are packed on, where the engine places them itself.
    pub machine: Machine,
    /// The folder that runs leave their marks and records in; one beside the command's own where there is none yet.
    pub place: Option<&'a Path>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub name: String,
    pub text: String,
    /// Whether it is a program.
    pub is_script: bool,
}

/// Runs that take the same resources: one array of a scheduler.
pub struct Shape<'a> {
    /// What is predicted of the one that takes most.
    pub predicted: Option<&'a Predicted>,
    /// GPUs of a run.
    pub gpus: u64,
    /// The runs, by their places in the plan.
    pub runs: Vec<usize>,
    /// Seconds that the longest may take, where all are known.
    pub seconds: Option<f64>,
}

impl Rendering<'_> {
    /// Runs by the GPUs that they take, the fewest first.
    pub fn shapes(&self) -> Vec<Shape<'_>> {
        let mut shapes: Vec<Shape<'_>> = Vec::new();
        for (at, run) in self.plan.runs.iter().enumerate() {
            let predicted = self.plan.planned_of(run).predicted.as_ref();
            let (gpus, seconds) = (self.gpus_of(at), predicted.and_then(|one| one.seconds).map(|span| span.high));
            match shapes.iter_mut().find(|shape| shape.gpus == gpus) {
                Some(shape) => {
                    shape.runs.push(at);
                    shape.seconds = shape.seconds.zip(seconds).map(|(a, b)| a.max(b));
                }
                None => shapes.push(Shape { predicted, gpus, runs: vec![at], seconds }),
            }
        }
        shapes.small_sort_by_key(|shape| shape.gpus);
        shapes
    }

    /// GPUs of a run: its job's, else what the file says, else one.
    fn gpus_of(&self, at: usize) -> u64 {
        let predicted = self.plan.planned_of(&self.plan.runs[at]).predicted.as_ref();
        predicted.map_or(self.elsewhere.gpus.unwrap_or(1), |one| one.gpus.max(1))
    }

    /// Nodes of a run.
    fn nodes(&self, shape: &Shape<'_>) -> u64 {
        shape.gpus.div_ceil(self.elsewhere.gpus_per_node.unwrap_or(shape.gpus).max(1)).max(1)
    }

    /// GiB of host memory on each node: its part of the node's, by GPUs.
    fn mem_gib(&self, shape: &Shape<'_>) -> Option<u64> {
        let per_node = shape.gpus.div_ceil(self.nodes(shape)).max(1);
        let whole = self.elsewhere.gpus_per_node.unwrap_or(per_node).max(per_node);
        self.elsewhere.mem_gib.map(|gib| (gib * per_node).div_ceil(whole))
    }

    /// Seconds that a job of `shape` asks for: what it may take and a tenth more, within the limit; `None` where neither is known.
    pub fn seconds(&self, shape: &Shape<'_>) -> Option<u64> {
        let limit = self.limits.hours.map(|hours| hours * 3600.0);
        let wanted = shape.seconds.map(|seconds| (seconds * 1.1).max(600.0));
        let seconds = match (wanted, limit) {
            (Some(wanted), Some(limit)) => wanted.min(limit),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return None,
        };
        Some(seconds.ceil() as u64)
    }

    /// The image, for engines that run containers only.
    fn image(&self, engine: &str) -> Result<&str, String> {
        let image = self.elsewhere.container.as_deref();
        image.ok_or_else(|| format!("{engine} runs containers: [slurm] container = \"IMAGE\" names yours"))
    }

    /// The names of the environment that hold secrets: names only, never values.
    fn secrets(&self) -> Result<&[String], String> {
        let is_name = |name: &&String| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        match self.elsewhere.secrets.iter().find(|name| !is_name(name)) {
            Some(name) => Err(format!(
                "[slurm] secrets: `{}` is no name of a variable; values do not belong here",
                name.escape_debug()
            )),
            None => Ok(&self.elsewhere.secrets),
        }
    }

    /// The script's lines that set `"$@"` to the words of run `$1`, and what the run is told.
    fn choose(&self, runs: &[usize], index: &str) -> String {
        let words: Vec<&[String]> = runs.iter().map(|at| self.commands[*at].as_slice()).collect();
        let names: Vec<String> = runs.iter().map(|at| self.plan.run_name(&self.plan.runs[*at])).collect();
        let ids: Vec<&str> = runs.iter().map(|at| self.plan.runs[*at].id.as_str()).collect();
        cases(index, &words, &ids, &names)
    }
}

/// A text that stands in a directive or a label: nothing that could end it.
fn plain(what: &str, text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:,/@=+&|*[]()%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("[slurm] {what}: `{}` has characters that a directive cannot hold", text.escape_debug())),
    }
}

#[cfg(test)]
mod tests;
