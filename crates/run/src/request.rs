//! What a run is made of: flags, the `[run]` table of a job file, and the job become a [`RunRecord`].

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;
use tonnage_core::job::{JobSpec, Spreading};
use tonnage_core::record::{FORMAT, JobRecord, NodeRecord, Policy, RunRecord};

use crate::RunError;
use crate::adapter::check_placeholders;
use crate::clock::now_ms;
use crate::secrets::Secrets;

/// Variables of the environment that say how a job ran and hold no secret. No other is recorded.
const RECORDED: [&str; 12] = [
    "CONDA_DEFAULT_ENV",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "LD_PRELOAD",
    "LOCAL_RANK",
    "NCCL_DEBUG",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "VIRTUAL_ENV",
];

/// The `[run]` table of a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunTable {
    pub command: Vec<String>,
    /// See [`Policy`], as all below.
    pub max_attempts: Option<u32>,
    pub max_seconds: Option<u64>,
    /// In rows.
    pub min_micro_batch: Option<u64>,
    pub grace_seconds: Option<u64>,
    pub stall_seconds: Option<u64>,
    pub stagger_seconds: Option<u64>,
    pub wait_seconds: Option<u64>,
    /// Where checkpoints are.
    pub checkpoints: Option<String>,
    /// The first node's seed; the others count on.
    pub seed: Option<u64>,
    /// Roles of the first nodes; the others are nodes.
    pub roles: Vec<String>,
    /// Whether Python tells the allocator's peaks.
    pub observe: bool,
    /// GPUs the nodes are dealt to.
    pub gpus: Vec<String>,
}

/// A whole job file, of which only one table is read here.
#[derive(Deserialize)]
struct JobFile {
    #[serde(default)]
    run: RunTable,
}

impl RunTable {
    /// The table of the job file called `file`.
    ///
    /// # Errors
    /// When a key is unknown or a value does not suit it.
    pub fn read_table(file: &str, text: &str) -> Result<Self, RunError> {
        let read: Result<JobFile, _> = toml::from_str(text);
        read.map(|file| file.run).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            RunError::Table { place: format!("{file}:{line}"), problem: error.message().replace('\n', ", ") }
        })
    }

    /// What the table says of a policy, on top of `policy`.
    pub fn apply(&self, mut policy: Policy) -> Policy {
        let set = |to: &mut u64, value: Option<u64>| *to = value.unwrap_or(*to);
        policy.max_attempts = self.max_attempts.unwrap_or(policy.max_attempts);
        policy.max_seconds = self.max_seconds.or(policy.max_seconds);
        policy.stall_seconds = self.stall_seconds.or(policy.stall_seconds);
        policy.checkpoints = self.checkpoints.clone().or(policy.checkpoints);
        policy.observes |= self.observe;
        set(&mut policy.min_micro_batch, self.min_micro_batch);
        set(&mut policy.grace_seconds, self.grace_seconds);
        set(&mut policy.stagger_seconds, self.stagger_seconds);
        set(&mut policy.wait_seconds, self.wait_seconds);
        policy
    }
}

/// Why the program of `command` cannot be started, as far as its file tells.
pub fn cannot_start(command: &[String]) -> Option<String> {
    let program = command.first().filter(|word| !word.contains('{'))?;
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        let path = Path::new(program);
        return match (path.exists(), is_program(path)) {
            (_, true) => None,
            (true, false) => Some(format!("cannot start `{program}`: it is no program that may be executed")),
            (false, _) => Some(format!("cannot start `{program}`: no such file")),
        };
    }
    let path = std::env::var_os("PATH")?;
    let is_there = std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)));
    (!is_there).then(|| format!("cannot start `{program}`: no such program in PATH"))
}

/// The record of a run of `command`, in the folder `folder`, of a job where there is one; and the secrets that it does not
/// hold.
///
/// # Errors
/// When the command has a template that nothing will fill in.
pub fn run_record(
    command: Vec<String>,
    folder: String,
    job: Option<(JobRecord, &JobSpec)>,
    table: &RunTable,
    policy: Policy,
) -> Result<(RunRecord, Secrets), RunError> {
    let keys = job.as_ref().map(|(job, _)| job.values.iter().map(|value| value.key.clone()).collect::<Vec<_>>());
    check_placeholders(&command, keys.as_deref())?;
    let secrets = Secrets::found_in(
        &command,
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    let job = job.map(|(record, spec)| (without_secrets(record, &secrets), spec));
    let command = secrets.hide_command(&command);
    let nodes = job.as_ref().map_or_else(Vec::new, |(_, spec)| node_records(spec, table));
    let policy = Policy { lease: job.as_ref().and_then(|(_, spec)| spec.task.facts().lease()), ..policy };
    let checkpoints = policy.checkpoints.clone().or_else(|| output_dir(&command));
    let policy = Policy { checkpoints, ..policy };
    let run = RunRecord {
        format: FORMAT,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        id: String::new(),
        created_ms: now_ms(),
        sequence: 0,
        command,
        folder,
        environment: recorded_environment(),
        job: job.map(|(record, _)| record),
        nodes: if nodes.is_empty() { vec![NodeRecord::default()] } else { nodes },
        policy,
    };
    Ok((run, secrets))
}

/// A job file may name the command, and with it the command's secrets.
fn without_secrets(job: JobRecord, secrets: &Secrets) -> JobRecord {
    JobRecord { text: job.text.map(|text| secrets.hide_in_job(&text)), ..job }
}

/// The folder that a command's words name, where the Trainer writes its checkpoints.
pub fn output_dir(command: &[String]) -> Option<String> {
    let at = command.iter().position(|word| word.starts_with("--output_dir") || word.starts_with("--output-dir"))?;
    match command[at].split_once('=') {
        Some((_, folder)) => Some(folder.to_owned()),
        None => command.get(at + 1).cloned(),
    }
}

/// A swarm's nodes, dealt to its GPUs in turn; none of another job.
pub fn node_records(job: &JobSpec, table: &RunTable) -> Vec<NodeRecord> {
    let Spreading::Nodes { nodes, gpus } = job.task.facts().spreading() else { return Vec::new() };
    let gpus: Vec<String> =
        if table.gpus.is_empty() { (0..gpus).map(|gpu| gpu.to_string()).collect() } else { table.gpus.clone() };
    let seed = table.seed.unwrap_or(0);
    let node = |index: u64| {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        NodeRecord {
            name: format!("node-{index}"),
            role: table.roles.get(at).cloned().unwrap_or_else(|| "node".to_owned()),
            index,
            seed: seed.saturating_add(index),
            gpu: gpus.get(at % gpus.len().max(1)).cloned(),
        }
    };
    (0..nodes).map(node).collect()
}

fn recorded_environment() -> BTreeMap<String, String> {
    RECORDED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_the_job_is_left_alone() {
        let text = "model = \"gpt2\"\n\n[run]\ncommand = [\"python\", \"t.py\"]\nstagger_seconds = 5\n";
        let table = RunTable::read_table("swarm.toml", text).unwrap();
        assert_eq!(table.command, ["python", "t.py"]);
        assert_eq!(table.apply(Policy::default()).stagger_seconds, 5);
        let error = RunTable::read_table("swarm.toml", &text.replace("stagger", "stager")).unwrap_err().to_string();
        assert!(error.starts_with("swarm.toml:5: [run]: unknown field `stager_seconds`"), "{error}");
    }

    #[test]
    fn secrets_are_not_recorded() {
        assert!(RECORDED.iter().all(|name| !["KEY", "TOKEN", "SECRET", "PASS"].iter().any(|word| name.contains(word))));
    }

    #[test]
    fn the_trainers_folder_has_the_checkpoints() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(output_dir(&words("t --output_dir out -x")), Some("out".to_owned()));
        assert_eq!(output_dir(&words("t --output-dir=out")), Some("out".to_owned()));
        assert_eq!(output_dir(&words("t")), None);
    }
}
