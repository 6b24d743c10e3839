//! [`Framework::patch`]: how the changes of a remedy are said to what the user trains with: arguments, a launcher's flags, an
//! environment variable, a line of a config, or a line of code where there is no option. A file each framework.
//!
//! Options were read in trl 1.16, transformers 5.17, accelerate 1.15, torch 2.11, and in rl-swarm's config of rgym_exp.

mod accelerate;
mod deepspeed;
mod pytorch;
mod rl_swarm;
mod transformers;

use super::remedy::Change;
use crate::job::keys;
use crate::job::{Framework, JobSpec, Strategy};

/// Its name in job files and for people.
const NAMES: [(Framework, &str); 6] = [
    (Framework::Trl, "trl"),
    (Framework::Trainer, "trainer"),
    (Framework::Accelerate, "accelerate"),
    (Framework::DeepSpeed, "deepspeed"),
    (Framework::Loop, "loop"),
    (Framework::RlSwarm, "rl_swarm"),
];

/// One thing to say, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `NAME=value` before the command.
    Environment(String),
    /// A flag of the launcher.
    Launcher(String),
    /// An argument of the script.
    Argument(String),
    /// A line of the framework's config file.
    Config(String),
    /// A line of the user's own code.
    Code(String),
    /// No option does it; what to know instead.
    Remark(String),
}

/// The changes of a job in the words of a framework.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patch {
    /// The lines, in the order of the changes, each once.
    pub lines: Vec<Line>,
}

impl Framework {
    /// As the table of frameworks names it for people.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(framework, _)| *framework == self).map_or("", |(_, name)| name)
    }

    /// What `changes` are in its words; `job` is the job with them.
    pub fn patch(self, job: &JobSpec, changes: &[Change]) -> Patch {
        let mut patch = Patch::default();
        for (key, value) in &[ranks_changed(job, changes).as_slice(), changes].concat() {
            for line in self.lines_for(job, key, value) {
                if !patch.lines.contains(&line) {
                    patch.lines.push(line);
                }
            }
        }
        patch
    }

    fn lines_for(self, job: &JobSpec, key: &str, value: &str) -> Vec<Line> {
        // Which GPU it is, is not the framework's business.
        if key == keys::GPU {
            return Vec::new();
        }
        if key == keys::ALLOCATOR_EXPANDABLE_SEGMENTS {
            return vec![Line::Environment("PYTORCH_ALLOC_CONF=expandable_segments:True".to_owned())];
        }
        let own = match self {
            Self::Trl => transformers::trl_lines(job, key, value),
            Self::Trainer => transformers::trainer_lines(job, key, value),
            Self::Accelerate => accelerate::config_lines(key, value),
            Self::DeepSpeed => deepspeed::config_lines(key, value),
            Self::Loop => pytorch::launch_lines(key, value),
            Self::RlSwarm => rl_swarm::config_lines(key, value),
        };
        own.unwrap_or_else(|| pytorch::code_lines(job, key, value))
    }

    /// How a training is started, `{}` standing for launcher flags and arguments.
    const fn command_words(self, several: bool) -> (&'static str, &'static str) {
        match self {
            Self::Trl | Self::Trainer if !several => ("python", "train.py"),
            Self::Trl | Self::Trainer | Self::Accelerate => ("accelerate launch", "train.py"),
            Self::DeepSpeed => ("deepspeed", "train.py"),
            Self::Loop if several => ("torchrun", "train.py"),
            Self::Loop => ("python", "train.py"),
            Self::RlSwarm => {
                ("python -m rgym_exp.runner.swarm_launcher", "--config-path configs --config-name rg-swarm.yaml")
            }
        }
    }
}

/// What a launcher must be told of a job on several ranks, if no change says it.
fn ranks_changed(job: &JobSpec, changes: &[Change]) -> Vec<Change> {
    let (world_size, strategy) = (job.parallel.world_size, job.parallel.strategy);
    if world_size < 2 || changes.is_empty() {
        return Vec::new();
    }
    let mut ranks = vec![(keys::WORLD_SIZE, world_size.to_string())];
    match strategy {
        Strategy::Fsdp1(_) => ranks.push((keys::PARALLEL, "fsdp1".to_owned())),
        Strategy::Fsdp2(_) => ranks.push((keys::PARALLEL, "fsdp2".to_owned())),
        _ => {}
    }
    ranks.retain(|(key, _)| changes.iter().all(|(other, _)| other != key));
    ranks
}

impl Patch {
    /// The command that starts the training with what can be said in one; the script's own arguments stand where `...` does.
    pub fn command(&self, framework: Framework) -> String {
        let of = |pick: fn(&Line) -> Option<&String>| self.lines.iter().filter_map(pick).cloned().collect::<Vec<_>>();
        let environment = of(|line| if let Line::Environment(text) = line { Some(text) } else { None });
        let launcher = of(|line| if let Line::Launcher(text) = line { Some(text) } else { None });
        let arguments = of(|line| if let Line::Argument(text) = line { Some(text) } else { None });
        let (start, script) = framework.command_words(!launcher.is_empty());
        let words =
            [environment, vec![start.to_owned()], launcher, vec![script.to_owned(), "...".to_owned()], arguments];
        words.concat().join(" ")
    }

    /// What a command cannot say: lines of configs and of code, and remarks.
    pub fn rest(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| matches!(line, Line::Config(_) | Line::Code(_) | Line::Remark(_)))
    }
}

impl Line {
    /// The option, the line of code, or the remark, as it is to be written.
    pub fn text(&self) -> &str {
        match self {
            Self::Environment(text)
            | Self::Launcher(text)
            | Self::Argument(text)
            | Self::Config(text)
            | Self::Code(text)
            | Self::Remark(text) => text,
        }
    }

    /// Where it belongs, for programs.
    pub const fn place(&self) -> &'static str {
        match self {
            Self::Environment(_) => "environment",
            Self::Launcher(_) => "launcher",
            Self::Argument(_) => "argument",
            Self::Config(_) => "config",
            Self::Code(_) => "code",
            Self::Remark(_) => "remark",
        }
    }
}

fn as_argument(text: impl Into<String>) -> Option<Vec<Line>> {
    Some(vec![Line::Argument(text.into())])
}

fn as_launcher(text: impl Into<String>) -> Option<Vec<Line>> {
    Some(vec![Line::Launcher(text.into())])
}

fn as_config(text: impl Into<String>) -> Option<Vec<Line>> {
    Some(vec![Line::Config(text.into())])
}

fn as_code(text: impl Into<String>) -> Option<Vec<Line>> {
    Some(vec![Line::Code(text.into())])
}

fn as_remark(text: impl Into<String>) -> Option<Vec<Line>> {
    Some(vec![Line::Remark(text.into())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{Ddp, Parallel, from_case};

    fn said(framework: Framework, changes: &[(&'static str, &str)]) -> Vec<String> {
        let job = from_case(&json!({"micro_batch": 4})).unwrap();
        let changes: Vec<Change> = changes.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        framework.patch(&job, &changes).lines.iter().map(|line| format!("{}: {}", line.place(), line.text())).collect()
    }

    #[test]
    fn names_are_those_of_the_key() {
        for (framework, name) in NAMES {
            assert_eq!((serde_json::to_value(framework).unwrap(), framework.name()), (json!(name), name));
        }
    }

    #[test]
    fn a_change_is_said_in_each_frameworks_words() {
        let rows = [("micro_batch_size", "2"), ("gradient_accumulation_steps", "4")];
        let cases = [
            (
                Framework::Trl,
                ["argument: --per_device_train_batch_size 2", "argument: --gradient_accumulation_steps 4"],
            ),
            (
                Framework::DeepSpeed,
                ["config: \"train_micro_batch_size_per_gpu\": 2", "config: \"gradient_accumulation_steps\": 4"],
            ),
            (
                Framework::Accelerate,
                ["code: DataLoader(dataset, batch_size=2)", "launcher: --gradient_accumulation_steps 4"],
            ),
            (
                Framework::Loop,
                [
                    "code: DataLoader(dataset, batch_size=2)",
                    "code: optimizer.step() every 4 backward passes, each loss / 4",
                ],
            ),
        ];
        for (framework, lines) in cases {
            assert_eq!(said(framework, &rows), lines, "{framework:?}");
        }
    }

    #[test]
    fn a_command_has_everything_that_a_command_can_say() {
        let job = from_case(&json!({"micro_batch": 4})).unwrap();
        let changes: [Change; 4] = [
            ("allocator.expandable_segments", "true".to_owned()),
            ("gradient_checkpointing", "true".to_owned()),
            ("world_size", "2".to_owned()),
            ("parallel", "fsdp2".to_owned()),
        ];
        let patch = Framework::Trainer.patch(&job, &changes);
        assert_eq!(
            patch.command(Framework::Trainer),
            "PYTORCH_ALLOC_CONF=expandable_segments:True accelerate launch --num_processes 2 --use_fsdp --fsdp_version 2 \
             --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP train.py ... --gradient_checkpointing True"
        );
        assert_eq!(patch.rest().count(), 0);
        // A job on several ranks is launched on them, whatever is changed.
        let ranks = Parallel { world_size: 4, strategy: Strategy::Ddp(Ddp::default()), ..job.parallel };
        let job = JobSpec { parallel: ranks, ..job };
        let command = |framework: Framework| framework.patch(&job, &changes[1..2]).command(framework);
        assert_eq!(
            command(Framework::Trainer),
            "accelerate launch --num_processes 4 train.py ... --gradient_checkpointing True"
        );
        assert!(command(Framework::Loop).starts_with("torchrun --nproc_per_node 4 train.py"));
    }
}
