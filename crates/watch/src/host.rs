//! [`Kernel`]: what `/proc` says of a process: command, user, container, and the job it belongs to.
//!
//! NVML's process ids are the host's. In a container they name nothing that can be seen, or, worse, somebody else: there
//! they are not looked up at all, unless the container shares the host's namespace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tonnage_secrets::hide_in_words;

/// The inode of the host's own process namespace (`PROC_PID_INIT_INO` of the Linux kernel's `proc_ns.h`).
const HOST_NAMESPACE: &str = "pid:[4026531836]";
/// Longer commands are cut.
const MOST_COMMAND: usize = 400;
/// Environment variables that name a job, the most telling first, each with the word before the value.
const JOB_VARIABLES: [(&str, &str); 4] = [
    ("SLURM_JOB_ID", "slurm "),
    ("TORCHELASTIC_RUN_ID", "torchrun "),
    ("KUBERNETES_JOB_NAME", ""),
    ("WANDB_RUN_ID", "wandb "),
];

/// The folder of an attempt, which `tonnage run` tells its processes: `RUN/attempt-1`, or `RUN/NODE/attempt-1`.
const ATTEMPT: &str = "TONNAGE_ATTEMPT_DIR";
/// The name of its node, where it has one.
const NODE: &str = "TONNAGE_NODE_NAME";
/// A process's number in its job: a rank, or a node of `tonnage run`.
const RANK_VARIABLES: [&str; 2] = ["RANK", "TONNAGE_NODE"];

/// What is known of a process beside NVML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Its command line, or why there is none.
    pub command: Command,
    /// Whose it is.
    pub user: Option<String>,
    /// The beginning of its container's id.
    pub container: Option<String>,
    /// The job it belongs to.
    pub job: Option<String>,
    /// Its rank or node in the job.
    pub rank: Option<u32>,
    /// The name of its node, where it has one.
    pub node: Option<String>,
    pub parent: Option<u32>,
    /// Resident bytes on the host.
    pub host_memory: Option<u64>,
    /// Clock ticks between boot and its start; with the id it names the process for good.
    pub started: Option<u64>,
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Command {
    /// As the kernel tells it, but for its secrets.
    Known(String),
    /// The process is not there any more.
    Gone,
    /// The id is one of the host, and this is a container.
    OfTheHost,
    /// Nobody looked, as in a recording.
    #[default]
    Unknown,
}

/// The kernel's view of processes.
pub struct Kernel {
    root: PathBuf,
    in_container: bool,
    users: BTreeMap<u32, String>,
    known: BTreeMap<u32, Host>,
}

impl Kernel {
    pub fn of_this_machine() -> Self {
        Self::at(Path::new("/proc"), Path::new("/etc/passwd"))
    }

    /// One whose process files are under `root`, and users in `passwd`.
    pub fn at(root: &Path, passwd: &Path) -> Self {
        let namespace = fs::read_link(root.join("self/ns/pid"));
        let in_container = namespace.is_ok_and(|link| link.as_os_str() != HOST_NAMESPACE);
        let users = fs::read_to_string(passwd).unwrap_or_default();
        let user = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
        };
        let users = users.lines().filter_map(user).collect();
        Self { root: root.to_owned(), in_container, users, known: BTreeMap::new() }
    }

    /// What is known of `pid`, read once in the life of the process but for its memory.
    pub fn look_up(&mut self, pid: u32) -> Host {
        if self.in_container {
            return Host { command: Command::OfTheHost, ..Host::default() };
        }
        // Other systems do not tell of processes in files: nothing is known of them, not that they are gone.
        if cfg!(not(target_os = "linux")) {
            return Host::default();
        }
        let folder = self.root.join(pid.to_string());
        let Some(stat) = fs::read_to_string(folder.join("stat")).ok().as_deref().and_then(Stat::parse) else {
            return Host { command: Command::Gone, ..Host::default() };
        };
        let known = self.known.get(&pid).filter(|host| host.started == Some(stat.started)).cloned();
        let mut host = known.unwrap_or_else(|| self.read(&folder, &stat));
        host.host_memory = Some(stat.resident_pages * 4096);
        self.known.insert(pid, host.clone());
        host
    }

    /// Forgets processes that ended.
    pub fn forget_all_but(&mut self, running: &[u32]) {
        self.known.retain(|pid, _| running.contains(pid));
    }

    fn read(&self, folder: &Path, stat: &Stat) -> Host {
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let variable = |name: &str| {
            let mut pairs = environment.split(|byte| *byte == 0);
            pairs.find_map(|pair| {
                let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                Some(String::from_utf8_lossy(value).into_owned())
            })
        };
        let named = |(name, word): &(&str, &str)| variable(name).map(|value| format!("{word}{value}"));
        let run = variable(ATTEMPT).and_then(|folder| run_of_attempt(&folder, variable(NODE).as_deref()));
        let job = run.or_else(|| JOB_VARIABLES.iter().find_map(named));
        let rank = RANK_VARIABLES.iter().find_map(|name| variable(name));
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        Host {
            command: Command::Known(command_line(folder, stat)),
            user: user_id(&status).map(|id| self.users.get(&id).cloned().unwrap_or_else(|| id.to_string())),
            container: fs::read_to_string(folder.join("cgroup")).ok().and_then(|text| container_of(&text)),
            job: Some(job.unwrap_or_else(|| format!("session {}", stat.session))),
            rank: rank.and_then(|rank| rank.parse().ok()),
            node: variable(NODE).filter(|name| !name.is_empty()),
            parent: Some(stat.parent),
            host_memory: None,
            started: Some(stat.started),
        }
    }
}

fn command_line(folder: &Path, stat: &Stat) -> String {
    let bytes = fs::read(folder.join("cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&bytes);
    // Cut afterwards: half a secret is one too.
    let words = hide_in_words(words.trim_end_matches('\0').split('\0')).join(" ");
    let text = if words.is_empty() { format!("[{}]", stat.name) } else { words };
    text.chars().take(MOST_COMMAND).collect()
}

/// The run that the folder of an attempt belongs to.
fn run_of_attempt(folder: &str, node: Option<&str>) -> Option<String> {
    let is_below = |part: &&str| part.starts_with("attempt-") || Some(*part) == node;
    let run = folder.rsplit('/').find(|part| !is_below(part))?;
    (!run.is_empty()).then(|| format!("run {run}"))
}

fn user_id(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The first 12 digits of the container that a cgroup's path names: 64 hexadecimal digits after a `/` or a `-`.
fn container_of(cgroup: &str) -> Option<String> {
    let parts = cgroup.split(['/', '-', '.', '\n', ':']);
    let mut ids = parts.filter(|part| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    ids.next_back().map(|id| id[..12].to_owned())
}

/// The fields of `/proc/PID/stat` that matter.
struct Stat {
    name: String,
    parent: u32,
    session: u32,
    started: u64,
    resident_pages: u64,
}

impl Stat {
    /// The name may hold spaces and brackets: it ends with the last bracket.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            name,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
            resident_pages: field(24)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = Stat::parse("7 (a) b (c) S 1 7 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 1000 25 0").unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.session), ("a) b (c", 1, 5));
        assert_eq!((stat.started, stat.resident_pages), (99, 25));
        assert!(Stat::parse("7 (python").is_none());
    }

    #[test]
    fn runs_are_named_by_their_folder() {
        let run = |folder, node| run_of_attempt(folder, node);
        assert_eq!(run("/home/a/runs/gpt2-17/attempt-2", None).as_deref(), Some("run gpt2-17"));
        assert_eq!(run("/home/a/runs/swarm/ada/attempt-1", Some("ada")).as_deref(), Some("run swarm"));
        assert_eq!(run("attempt-2", None), None);
    }

    #[test]
    fn a_process_of_this_user_has_its_job() {
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("60").env("SLURM_JOB_ID", "17").env("RANK", "3").env(NODE, "ada").spawn().unwrap();
        let mut kernel = Kernel::of_this_machine();
        kernel.in_container = false;
        // Until it has become `sleep` it has the environment of this test.
        let found = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            kernel.known.clear();
            Some(kernel.look_up(child.id())).filter(|host| host.job.as_deref() == Some("slurm 17"))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let host = found.unwrap();
        assert_eq!((host.rank, host.parent), (Some(3), Some(std::process::id())));
        assert_eq!(host.node.as_deref(), Some("ada"));
        assert_eq!(kernel.look_up(child.id()).command, Command::Gone);
    }

    #[test]
    fn containers_of_docker_and_kubernetes() {
        let id = "0123456789abcdef".repeat(4);
        for text in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("12:memory:/docker/{id}\n"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
        ] {
            assert_eq!(container_of(&text).as_deref(), Some("0123456789ab"), "{text}");
        }
        assert_eq!(container_of("0::/user.slice/user-1000.slice\n"), None);
    }

    #[test]
    fn this_process_is_known_and_no_other_is_made_up() {
        let mut kernel = Kernel::of_this_machine();
        kernel.in_container = false;
        let host = kernel.look_up(std::process::id());
        assert!(matches!(host.command, Command::Known(text) if text.contains("watch")));
        assert_eq!(kernel.look_up(u32::MAX).command, Command::Gone);
        kernel.in_container = true;
        assert_eq!(kernel.look_up(std::process::id()).command, Command::OfTheHost);
    }
}
