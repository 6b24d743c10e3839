//! `tonnage train` of a swarm: an experiment is begun, gone on with, or joined by its name, and its nodes are processes of one run.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use tonnage_core::job::{Task, keys};
use tonnage_core::record::{NodeRecord, RunRecord};
use tonnage_run::clock::now_ms;
use tonnage_run::request::{RunTable, node_records};
use tonnage_train::grpo::swarm::{SwarmFolder, SwarmReady};
use tonnage_train::store::checkpoints::Checkpoints;

use super::engine::train_failure;
use super::job::TrainJob;
use super::output::prepare_folder;
use crate::failure::Failure;

/// What becomes of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// None may be there.
    Anew,
    /// One that is there is moved aside.
    Over,
    /// It goes on where its nodes stopped.
    Resumed,
    /// Others have begun it.
    Joined,
}

/// The nodes of this machine.
pub struct Swarm {
    /// Their output folders lie in it.
    pub output: PathBuf,
    shared: PathBuf,
    nodes: u64,
    joins: bool,
}

/// The folder of a node's checkpoints and metrics.
pub fn node_folder(output: &Path, index: u64) -> PathBuf {
    output.join(format!("node-{index}"))
}

impl Swarm {
    /// Makes the shared folder and those of the nodes ready; `None` for a job that is no swarm.
    ///
    /// # Errors
    /// When an experiment is there that should not be, or is not there that should be.
    pub fn prepare(job: &TrainJob, begin: Begin) -> Result<Option<Self>, Failure> {
        if !matches!(job.resolved.job.task, Task::Swarm(_)) {
            return Ok(None);
        }
        let output = job.output_folder();
        let about = |path: &Path, error: &std::io::Error| Failure::about_file(&path.display().to_string(), error);
        fs::create_dir_all(&output).map_err(|error| about(&output, &error))?;
        let output = fs::canonicalize(&output).map_err(|error| about(&output, &error))?;
        let program = job.make_program(None, false);
        let ready = SwarmReady::new(&program).map_err(|error| train_failure(&error))?;
        let folder = ready.folder(&output).map_err(|error| train_failure(&error))?;
        let (rounds, nodes) = ready.sizes();
        let shared = shared_root(&folder)?;
        let joins = begin == Begin::Joined;
        let output = if joins { joined_folder(&output)? } else { output };
        match begin {
            Begin::Anew | Begin::Over => {
                for index in 0..nodes {
                    prepare_folder(&node_folder(&output, index), false, begin == Begin::Over)?;
                }
                begin_experiment(&folder, (rounds, nodes), begin == Begin::Over)?;
            }
            Begin::Resumed | Begin::Joined => check_there(&folder, &output, nodes, joins)?,
        }
        Ok(Some(Self { output, shared, nodes, joins }))
    }

    /// What the trainer is told beside the job.
    pub fn words(&self) -> Vec<String> {
        let threads = available_parallelism().map_or(1, |cores| cores.get() as u64 / self.nodes.max(1)).max(1);
        let mut words = vec!["--set".to_owned(), format!("{}={}", keys::SWARM_FOLDER, self.shared.display())];
        words.extend(["--node".to_owned(), "{node}".to_owned(), "--threads".to_owned(), threads.to_string()]);
        words.extend(self.joins.then(|| "--join".to_owned()));
        words
    }

    /// Gives a run its nodes; on the CPU they have no GPU.
    pub fn place_nodes(&self, job: &TrainJob, run: &mut RunRecord, on_gpu: bool) {
        let nodes = node_records(&job.resolved.job, &RunTable::default());
        let role = |index: u64| if index == 0 && !self.joins { "coordinator" } else { "worker" }.to_owned();
        let placed = |node: NodeRecord| NodeRecord { role: role(node.index), gpu: node.gpu.filter(|_| on_gpu), ..node };
        run.nodes = nodes.into_iter().map(placed).collect();
    }

    /// The folder of each node.
    pub fn folders(&self) -> Vec<PathBuf> {
        (0..self.nodes).map(|index| node_folder(&self.output, index)).collect()
    }
}

/// The folder that holds all experiments.
fn shared_root(folder: &SwarmFolder) -> Result<PathBuf, Failure> {
    let root = folder.root().parent().and_then(Path::parent).unwrap_or(folder.root());
    fs::create_dir_all(root).map_err(|error| Failure::about_file(&root.display().to_string(), &error))?;
    fs::canonicalize(root).map_err(|error| Failure::about_file(&root.display().to_string(), &error))
}

fn begin_experiment(folder: &SwarmFolder, (rounds, nodes): (u64, u64), replaces: bool) -> Result<(), Failure> {
    let root = folder.root();
    if replaces && root.exists() {
        let aside = root.with_extension(format!("replaced-{}", now_ms()));
        fs::rename(root, &aside).map_err(|error| Failure::about_file(&root.display().to_string(), &error))?;
    }
    if folder.begin(rounds, nodes).map_err(|error| train_failure(&error))? {
        return Ok(());
    }
    Err(Failure::bad_input(format!("the experiment in {} has begun already", root.display())).with_hint(format!(
        "--join takes part in it, --resume goes on with its nodes, --overwrite moves it aside, --set {}=NAME begins another",
        keys::SWARM_EXPERIMENT
    )))
}

fn check_there(folder: &SwarmFolder, output: &Path, nodes: u64, joins: bool) -> Result<(), Failure> {
    if folder.experiment().map_err(|error| train_failure(&error))?.is_none() {
        return Err(Failure::bad_input(format!("there is no experiment in {}", folder.root().display())).with_hint(
            format!(
                "leave --join or --resume out to begin it, or say where it is: --set {}=FOLDER --set {}=NAME",
                keys::SWARM_FOLDER,
                keys::SWARM_EXPERIMENT
            ),
        ));
    }
    let has_checkpoint =
        |index| Checkpoints::new(&node_folder(output, index), 1).newest().is_ok_and(|found| found.is_some());
    if joins || (0..nodes).any(has_checkpoint) {
        return Ok(());
    }
    Err(Failure::bad_input(format!("no node in {} has a checkpoint to go on with", output.display()))
        .with_hint("--overwrite begins anew"))
}

/// A folder of its own for those who join from here.
fn joined_folder(output: &Path) -> Result<PathBuf, Failure> {
    for number in 0.. {
        let folder = output.join(format!("joined-{number}"));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::about_file(&folder.display().to_string(), &error)),
        }
    }
    Ok(output.to_owned())
}
