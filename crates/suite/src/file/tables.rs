//! The tables of a suite's file.

use serde::Deserialize;
use toml::Value;
use tonnage_core::job::JobError;

use super::read_seeds;
use super::values::{Axes, Settings, check_value, flatten_table, read_axes};

/// A table `[[configuration]]`: one configuration, or one of each combination of its lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What to call it, and the group that its configurations are in.
    pub name: Option<String>,
    pub groups: Vec<String>,
    /// How often it is run where no seeds are said (data sets, seeds from 0).
    pub count: Option<u64>,
    /// Its own seeds.
    pub seeds: Option<Vec<u64>>,
    /// Its keys, each with its values.
    pub axes: Axes,
    /// Combinations of them that are left out.
    pub exclude: Vec<Settings>,
    /// The line in which it begins, from 1.
    pub line: Option<usize>,
}

impl Table {
    /// Where it stands, for errors.
    pub fn place(&self) -> String {
        let line = self.line.map_or_else(String::new, |line| format!("line {line}, "));
        format!("{line}configuration `{}`", self.name.as_deref().unwrap_or(""))
    }
}

/// What must hold of a sum or a product of keys, in every configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constraint {
    /// Keys that are added.
    pub sum: Vec<String>,
    /// Keys that are multiplied.
    pub product: Vec<String>,
    /// What it is; without any of these three it is the same in all configurations.
    pub is: Option<f64>,
    /// What it is at least.
    pub at_least: Option<f64>,
    /// What it is at most.
    pub at_most: Option<f64>,
}

/// How runs are kept alive here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// Runs at once, at most.
    pub slots: Option<usize>,
    /// Seconds between two starts on one GPU; 2 where runs share it by their bytes.
    pub stagger_seconds: Option<f64>,
    /// Equal failures at the start after which the suite pauses; 0 never.
    pub pause_after: Option<usize>,
    /// Whether the first failure ends the suite.
    pub fail_fast: bool,
    /// Starts of a run's command, at most.
    pub max_attempts: Option<u32>,
    /// Seconds without output and work after which a run counts as hung.
    pub stall_seconds: Option<u64>,
    /// Seconds between asking a run to end and ending it; also how long a checkpoint may take.
    pub grace_seconds: Option<u64>,
    /// Seconds between two looks at the GPUs for the system metrics; 15, as W&B's.
    pub sample_seconds: Option<f64>,
}

/// Limits of sessions and jobs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Hours that a session or a job may take.
    pub hours: Option<f64>,
    /// GPUs of a machine.
    pub gpus: Option<usize>,
}

/// How a run goes on that takes longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoesOn {
    /// Its job is put back into the queue.
    Requeue,
    /// As many jobs as it may need are submitted, each behind the one before.
    Chain,
}

/// What schedulers are told.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Elsewhere {
    pub account: Option<String>,
    pub partition: Option<String>,
    pub qos: Option<String>,
    pub constraint: Option<String>,
    /// GPUs of a run, where no job says; 0 of one that takes none.
    pub gpus: Option<u64>,
    /// GPUs of a node.
    pub gpus_per_node: Option<u64>,
    /// The type in `--gres=gpu:TYPE:N`.
    pub gpu_type: Option<String>,
    /// CPU cores for each GPU.
    pub cpus_per_gpu: Option<u64>,
    /// Host memory of a node.
    pub mem_gib: Option<u64>,
    /// Array tasks at once.
    pub throttle: Option<usize>,
    /// How a run goes on that takes longer than its limit.
    pub goes_on: Option<GoesOn>,
    /// Further directives, as they stand after `#SBATCH `.
    pub directives: Vec<String>,
    /// Shell lines before the command (modules, environments). The only text that a shell reads as code.
    pub setup: Vec<String>,
    /// An image for apptainer, or for pyxis.
    pub container: Option<String>,
    /// `apptainer` or `pyxis`.
    pub container_engine: Option<String>,
    /// Jobs of a chain, where no prediction says how many a run needs.
    pub links: Option<u64>,
    /// GiB of /dev/shm, which PyTorch's loaders share; the host's own without it.
    pub shm_gib: Option<u64>,
    /// Whether Kubernetes gets a JobSet, which is there for runs of several nodes, instead of an Indexed Job.
    pub jobset: bool,
    /// Names of secrets that the runs' environment takes from the submitter's.
    pub secrets: Vec<String>,
}

/// A table read by its fields.
pub(super) fn read<T: for<'de> Deserialize<'de>>(name: &str, value: &Value) -> Result<T, JobError> {
    value
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| JobError::new(format!("[{name}]: {}", error.message().replace('\n', ", "))))
}

pub(super) fn read_exclusions(rows: &[Value]) -> Result<Vec<Settings>, JobError> {
    let settings = |row: &Value| match row {
        Value::Table(table) if !table.is_empty() => flatten_table(table).into_iter().map(check_value).collect(),
        _ => Err(JobError::new("`exclude` is tables of keys, each with one value")),
    };
    rows.iter().map(settings).collect()
}

pub(super) fn read_configurations(rows: &[Value], source: &str) -> Result<Vec<Table>, JobError> {
    let with_line = |(row, line): (&Value, usize)| Ok(Table { line: Some(line), ..read_configuration(row)? });
    rows.iter().zip(lines_of_tables(source)).map(with_line).collect()
}

fn read_configuration(row: &Value) -> Result<Table, JobError> {
    let Value::Table(table) = row else {
        return Err(JobError::new("`configuration` must be tables: [[configuration]]"));
    };
    let mut rest = table.clone();
    let mut made = Table::default();
    for key in ["name", "group", "count", "seeds", "exclude"] {
        match (key, rest.remove(key)) {
            (_, None) => {}
            ("name", Some(Value::String(name))) => made.name = Some(name),
            ("group", Some(Value::String(group))) => made.groups = vec![group],
            ("group", Some(Value::Array(groups))) => {
                let texts = groups.iter().map(|group| group.as_str().map(str::to_owned));
                made.groups = texts.collect::<Option<_>>().ok_or_else(|| wrong_table("`group` must be texts"))?;
            }
            ("count", Some(Value::Integer(count))) if count > 0 => made.count = Some(count.unsigned_abs()),
            ("seeds", Some(value)) => made.seeds = Some(read_seeds(&value)?),
            ("exclude", Some(Value::Array(rows))) => made.exclude = read_exclusions(&rows)?,
            ("name" | "group", _) => return Err(wrong_table(&format!("`{key}` must be a text"))),
            ("count", _) => return Err(wrong_table("`count` must be a whole number from 1")),
            _ => return Err(wrong_table("`exclude` must be a list of tables")),
        }
    }
    made.axes = read_axes(&rest);
    match made.axes.iter().find(|(_, values)| values.is_empty()) {
        Some((key, _)) => Err(wrong_table(&format!("`{key}` has an empty list"))),
        None => Ok(made),
    }
}

fn wrong_table(problem: &str) -> JobError {
    JobError::new(format!("a configuration's {problem}"))
}

/// The lines in which tables [[configuration]] begin, then the last line for all that are written otherwise.
fn lines_of_tables(text: &str) -> impl Iterator<Item = usize> {
    let is_head = |line: &str| line.split_whitespace().collect::<String>().starts_with("[[configuration]]");
    let heads: Vec<usize> = text.lines().zip(1..).filter(|(line, _)| is_head(line)).map(|(_, at)| at).collect();
    heads.into_iter().chain(std::iter::repeat(text.lines().count().max(1)))
}
