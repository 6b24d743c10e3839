//! Every command of README.md and docs/*.md is executed by a shell as it stands there, a page from its top to its end in a folder of its own, with
//! stand-ins for what a reader has: a job, a script, `torchrun`, SLURM. A command that a page gets is executed too, unless it is said here why not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::support::pages::{Line, all_lines, repository};
use super::{Home, torch_python};

/// What is done with a command that does not just end well.
enum Way {
    /// It ends with this exit code: it says no, or there is nothing to do.
    Ends(i32),
    /// It goes on until it is interrupted: not before this stands in its output, or in the file of this name.
    Until(&'static str),
    /// Somebody else may have its port.
    UntilOrTaken(&'static str),
    /// It needs PyTorch.
    Torch,
    /// It is not executed here, for this reason.
    Left(&'static str),
}

/// A page, how its commands begin, and what is done with them; the first that fits holds.
const OTHERWISE: &[(&str, &str, Way)] = &[
    ("README.md", "cargo install ", Way::Left("compiles the release: the lane `wheel` does, and installs it")),
    ("README.md", "cargo run --release ", Way::Left("the page's first command, compiled as a release")),
    ("README.md", "cargo test --workspace", Way::Left("it would run this test: the lane `unit`")),
    ("README.md", "tonnage rehearse ", Way::Torch),
    ("accuracy.md", "cargo xtask accuracy ", Way::Left("another program's: the lane `accuracy`")),
    ("estimate.md", "tonnage estimate examples/grpo-7b-judge-14b.toml ", Way::Ends(1)),
    ("estimate.md", "tonnage estimate examples/sapo-gpt2-swarm.toml ", Way::Ends(1)),
    ("estimate.md", "tonnage estimate llama-3.1-8b --quantization nf4 --bnb-4bit-compute-dtype ", Way::Ends(1)),
    ("fit.md", "tonnage fit examples/sapo-gpt2-swarm.toml ", Way::Ends(1)),
    ("generate.md", "tonnage generate ", Way::Torch),
    ("rehearse.md", "tonnage rehearse ", Way::Torch),
    ("grpo.md", "tonnage train ", Way::Torch),
    ("hrm.md", "tonnage train ", Way::Torch),
    ("sapo.md", "tonnage train ", Way::Torch),
    ("report.md", "cargo run --release ", Way::Left("measures reports of 10,000 runs for minutes")),
    ("report.md", "tonnage report testdata/experiment/sapo-replication --fail-on-check", Way::Ends(1)),
    ("run.md", "tonnage logs --follow", Way::Until("step 1/3")),
    ("suite.md", "export SLURM_", Way::Left("a real SLURM of loopback: the lane `suites` starts one")),
    ("suite.md", "TONNAGE_SLURM_RUNS=30 ", Way::Left("a real SLURM of loopback: the lane `suites` runs its checks")),
    (
        "suite.md",
        "testdata/suites/slurm_loopback.sh stop ",
        Way::Left("a real SLURM of loopback: the lane `suites` stops it"),
    ),
    ("suite.md", "tonnage report lr-scan", Way::Ends(2)),
    ("suite.md", "tonnage suite retry ", Way::Ends(1)),
    ("suite.md", "tonnage suite stop policies", Way::Ends(1)),
    ("train.md", "t", Way::Torch),
    ("watch.md", "TONNAGE_PHANTOM_QUIET=1 ", Way::Left("nvitop, another program: the lane `watch`")),
    ("watch.md", "tonnage watch --csv ", Way::Until("gpus.csv")),
    ("watch.md", "tonnage watch --prometheus", Way::UntilOrTaken("http://127.0.0.1:9838")),
    ("watch.md", "tonnage watch --web", Way::UntilOrTaken("http://127.0.0.1:9840")),
    ("watch.md", "tonnage watch --record ", Way::Until("session.jsonl")),
];

fn way_of(line: &Line) -> Option<&'static Way> {
    let fits = |(page, begins, _): &&(&str, &str, Way)| line.page == *page && line.text.starts_with(begins);
    OTHERWISE.iter().find(fits).map(|(_, _, way)| way)
}

const SWARM: &str = r#"
model = "gpt2"
task = "swarm"
gpu = "40GiB,sm_80"
prompt_len = 64
completion_len = 64
num_generations = 8
[swarm]
nodes = 2
gpus = 1
[run]
command = ["python", "train.py", "{role}", "{seed}"]
"#;

/// What makes an example of training short.
const SHORTER: &[(&str, &[(&str, &str)])] = &[
    (
        "grpo-arithmetic.toml",
        &[("max_steps = 700", "max_steps = 3"), ("warm_start_reward = 0.2", "eval_questions = 16")],
    ),
    (
        "hrm-sudoku.toml",
        &[("max_steps = 4000", "max_steps = 3"), ("puzzles = 4000", "puzzles = 20"), ("puzzles = 256", "puzzles = 4")],
    ),
    (
        "sapo-arithmetic.toml",
        &[
            ("max_steps = 100 ", "max_steps = 3 "),
            ("warm_start_reward = 0.15", ""),
            ("eval_questions = 400", "eval_questions = 16"),
        ],
    ),
];

/// As Ctrl-C does it; a program that a shell started in the background, and all below it, ignores that.
fn end_group(group: Pid, child: &mut Child) {
    killpg(group, Signal::SIGINT).unwrap();
    let asked = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if asked.elapsed() > Duration::from_secs(5) {
            let _ = killpg(group, Signal::SIGTERM);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A reader's folder, and the programs that a reader has.
struct Place {
    home: Home,
    path: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let home = Home::new(&format!("pages-{name}"));
        for folder in ["testdata", "docs", "crates"] {
            std::os::unix::fs::symlink(repository().join(folder), home.path(folder)).unwrap();
        }
        // What is trained may write beside its job.
        let copied = Command::new("cp").arg("-r").arg(repository().join("examples")).arg(home.path("")).status();
        assert!(copied.unwrap().success());
        fs::create_dir_all(home.path("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tonnage"), home.path("bin/tonnage")).unwrap();
        // A command of the page may name another GPU; without any, `run` asks for one where the machine has none.
        home.write("job.toml", &format!("gpu = \"h100\"\n{}", super::train::JOB));
        home.write("stories.txt", &fs::read_to_string(repository().join("examples/stories.txt")).unwrap());
        home.write("swarm.toml", SWARM);
        home.write("prompt.txt", "Once upon a time\n");
        home.write("train.py", include_str!("pages/train.py"));
        let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
        Self { home, path }
    }

    fn add_program(&self, name: &str, script: &str) {
        let path = self.home.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Scripts of Python without PyTorch, a launcher, and a SLURM.
    fn with_stand_ins(name: &str) -> Self {
        let place = Self::new(name);
        place.add_program("python", "exec python3 \"$@\"");
        place.add_program("torchrun", "until [ \"${1%.py}\" != \"$1\" ]; do shift; done; exec python3 \"$@\"");
        let slurm = place.home.write("slurm.py", include_str!("pages/slurm.py"));
        for program in ["sbatch", "squeue", "scancel", "sacct", "scontrol", "sinfo"] {
            place.add_program(program, &format!("exec python3 '{slurm}' {program} \"$@\""));
        }
        place
    }

    /// PyTorch's own launcher and interpreter, and a script that uses them.
    fn with_torch(name: &str) -> Self {
        let mut place = Self::new(name);
        place.home.write("train.py", include_str!("pages/train_torch.py"));
        let folder = PathBuf::from(torch_python());
        place.path = format!("{}:{}", folder.parent().unwrap().display(), place.path);
        place
    }

    /// A small model where the hub cache would have the example's.
    fn with_weights(self) -> Self {
        super::train::python(&self.home, super::train_models::FOLDER, &[]);
        let model = self.home.path("hf/hub/models--Qwen--Qwen2.5-0.5B");
        for folder in ["snapshots", "refs"] {
            fs::create_dir_all(model.join(folder)).unwrap();
        }
        fs::rename(self.home.path("base"), model.join("snapshots/0123456789")).unwrap();
        fs::write(model.join("refs/main"), "0123456789").unwrap();
        self
    }

    /// The examples that learn for minutes, a few steps of each.
    fn with_short_examples(self) -> Self {
        for (example, shorter) in SHORTER {
            let path = self.home.path(&format!("examples/{example}"));
            let mut text = fs::read_to_string(&path).unwrap();
            for (long, short) in *shorter {
                assert!(text.contains(long), "{example} has no `{long}`");
                text = text.replace(long, short);
            }
            fs::write(path, text).unwrap();
        }
        self
    }

    /// Starts the line in a shell that leads a group of its own.
    fn start(&self, line: &Line) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", &line.text]).current_dir(self.home.path("")).env_clear().process_group(0);
        command.env("PATH", &self.path).env("HOME", self.home.path("")).env("TONNAGE_HOME", self.home.path("home"));
        command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8").env("TONNAGE_SLURM_POLL_SECONDS", "0");
        if line.page == "watch.md" {
            let library = std::env::current_exe().unwrap().with_file_name("libtonnage_phantom.so");
            command.env("TONNAGE_NVML_LIBRARY", library).env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
            let script = repository().join("testdata/nvml/leak.jsonl");
            command.env("TONNAGE_NVML_SCRIPT", script).env("TONNAGE_PHANTOM_QUIET", "1");
        }
        if let Ok(python) = std::env::var("TONNAGE_TORCH_PYTHON") {
            let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("train-cache");
            command.env("TONNAGE_TORCH", python).env("XDG_CACHE_HOME", cache).env("OMP_NUM_THREADS", "1");
        }
        command.env("HF_HOME", self.home.path("hf"));
        let file = |name: &str| fs::File::create(self.home.path(name)).unwrap();
        let is_asked = line.page == "generate.md";
        let stdin = if is_asked { fs::File::open(self.home.path("prompt.txt")).unwrap().into() } else { Stdio::null() };
        command.stdin(stdin).stdout(file("stdout")).stderr(file("stderr")).spawn().expect("a shell")
    }

    fn read_file(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.home.path(name)).unwrap_or_default()).into_owned()
    }

    /// All that the last line has said.
    fn said(&self) -> String {
        self.read_file("stdout") + &self.read_file("stderr")
    }

    /// Waits for the end, or for `sign` and interrupts then; its exit code, if it ended by itself.
    fn wait_for(&self, line: &Line, mut child: Child, sign: Option<&str>) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(3600);
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            if sign.is_some_and(|sign| self.said().contains(sign) || self.read_file(sign).lines().count() > 1) {
                end_group(group, &mut child);
                return None;
            }
            if Instant::now() > until {
                killpg(group, Signal::SIGKILL).unwrap();
                panic!("{}: `{}` does not end\n{}", line.place, line.text, self.said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn execute(&self, line: &Line) {
        let (sign, wanted) = match way_of(line) {
            None | Some(Way::Torch) => (None, vec![Some(0)]),
            Some(Way::Ends(code)) => (None, vec![Some(*code)]),
            Some(Way::Until(sign)) => (Some(*sign), vec![None]),
            Some(Way::UntilOrTaken(sign)) => (Some(*sign), vec![None, Some(2)]),
            Some(Way::Left(_)) => return,
        };
        // What another way of the same training wrote.
        let _ = fs::remove_dir_all(self.home.path("out"));
        let child = self.start(line);
        let code = self.wait_for(line, child, sign);
        assert!(wanted.contains(&code), "{}: `{}` ends with {code:?}\n{}", line.place, line.text, self.said());
        if sign.is_some() && code == Some(2) {
            assert!(self.said().contains("in use"), "{}: {}", line.place, self.said());
        }
        let out = self.read_file("stdout");
        assert!(
            stand_in(&line.shown, &out),
            "{}: the page shows\n{}\nand it prints\n{out}",
            line.place,
            line.shown.join("\n")
        );
    }

    /// Executes what the pages have of such commands, in order.
    fn execute_pages(&self, pages: &[&str], is_meant: impl Fn(&Line) -> bool) {
        for page in pages {
            let lines: Vec<_> = all_lines().into_iter().filter(|line| line.page == *page && is_meant(line)).collect();
            assert!(!lines.is_empty(), "{page} has no command");
            for line in &lines {
                self.execute(line);
            }
        }
    }
}

/// Whether the lines stand in `text`, in this order.
fn stand_in(shown: &[String], text: &str) -> bool {
    let mut left = text.lines();
    shown
        .iter()
        .filter(|line| !line.trim().is_empty())
        .all(|line| left.any(|other| other.trim_end() == line.trim_end()))
}

fn needs_torch(line: &Line) -> bool {
    matches!(way_of(line), Some(Way::Torch))
}

fn needs_no_torch(line: &Line) -> bool {
    !needs_torch(line)
}

/// Pages whose commands live beside one another.
const ALONE: [&str; 3] = ["run.md", "suite.md", "watch.md"];

#[test]
fn commands_that_answer() {
    let place = Place::with_stand_ins("answers");
    let mut pages: Vec<String> = all_lines().into_iter().filter(needs_no_torch).map(|line| line.page).collect();
    pages.dedup();
    let pages: Vec<&str> = pages.iter().map(String::as_str).filter(|page| !ALONE.contains(page)).collect();
    assert!(pages.len() > 8, "{pages:?}");
    place.execute_pages(&pages, needs_no_torch);
}

#[test]
fn commands_of_runs() {
    Place::with_stand_ins("run").execute_pages(&["run.md"], needs_no_torch);
}

#[test]
fn commands_of_suites() {
    Place::with_stand_ins("suite").execute_pages(&["suite.md"], needs_no_torch);
}

#[test]
fn commands_of_the_screen() {
    Place::with_stand_ins("watch").execute_pages(&["watch.md"], needs_no_torch);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn commands_that_rehearse() {
    Place::with_torch("rehearse").execute_pages(&["README.md", "rehearse.md"], needs_torch);
}

/// What is generated from was trained by the page before.
#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn commands_that_train_and_generate() {
    Place::with_torch("train").with_weights().execute_pages(&["train.md", "generate.md"], needs_torch);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn commands_of_grpo_hrm_and_swarms() {
    Place::with_torch("learning").with_short_examples().execute_pages(&["grpo.md", "hrm.md", "sapo.md"], needs_torch);
}

#[test]
fn every_exception_is_a_command_of_a_page() {
    let lines = all_lines();
    for (page, begins, way) in OTHERWISE {
        let stands = lines.iter().any(|line| line.page == *page && line.text.starts_with(begins));
        assert!(stands, "{page} has no command that begins with `{begins}`");
        if let Way::Left(reason) = way {
            assert!(reason.len() > 10 && !begins.starts_with("tonnage"), "{page}: `{begins}` is ours, and is executed");
        }
    }
    assert!(lines.len() > 100, "{} commands were found", lines.len());
}
