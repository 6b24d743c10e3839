//! [`Exception`]: what a program raised, where, in which phase; told apart from what launchers and victims raise.

use super::text::has;

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the traceback names it; not yet fit for a terminal.
    pub file: String,
    /// Its line.
    pub line: u64,
    /// The function.
    pub function: String,
}

/// What the program did when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Imports, models, data, checkpoints: before the first step.
    Load,
    /// Forward, backward, optimizer.
    Step,
    /// Writing a checkpoint.
    Save,
    /// Evaluation or generation.
    Eval,
}

impl Phase {
    /// Its name for programs: `load`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Step => "step",
            Self::Save => "save",
            Self::Eval => "eval",
        }
    }
}

/// Who raised it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raiser {
    /// The program: this is what went wrong.
    Program,
    /// A launcher, about a worker that failed.
    Launcher,
    /// Somebody who lost the other end.
    Victim,
    /// A thread, a destructor, a request: the program may have gone on.
    Aside,
    /// Whoever pressed Ctrl-C.
    Interrupt,
}

/// What was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// `KeyError`, with its package where the traceback states it.
    pub name: String,
    /// What it says.
    pub message: String,
    /// Who raised it.
    pub raiser: Raiser,
}

/// Exceptions of launchers, by the end of their names.
const LAUNCHERS: &[&str] = &[
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "SignalException",
    "RayTaskError",
    "RayTrainWorkerError",
    "TrainingFailedError",
    "RendezvousClosedError",
    "RendezvousGracefulExitError",
    "TuneError",
];
/// Files of launchers: what is raised there is about a worker.
const LAUNCHER_FILES: &[&str] = &[
    "torch/distributed/launch",
    "torch/distributed/run.py",
    "torch/distributed/elastic/",
    "accelerate/commands/",
    "deepspeed/launcher/",
    "horovod/runner/",
    "torch/multiprocessing/spawn.py",
    "torch_xla/distributed/xla_multiprocessing.py",
];
/// Exceptions of those who lost the other end, by the end of their names.
const VICTIMS: &[&str] = &[
    "BrokenPipeError",
    "ConnectionResetError",
    "ActorDiedError",
    "RayActorError",
    "ActorUnavailableError",
    "WorkerCrashedError",
    "BrokenProcessPool",
    "EngineDeadError",
    "AsyncEngineDeadError",
    "CancelledError",
    "KilledWorker",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
];
/// What they say, where the name says nothing.
const VICTIMS_WORDS: &[&str] = &[
    "Engine core initialization failed",
    "Engine process failed to start",
    "Engine loop is not running",
    "Failed core proc(s)",
    "WorkerProc initialization failed",
    "Background loop has errored already",
    "Background loop is not running",
    "Rank 0 scheduler died",
    "died unexpectedly",
    "NCCL error",
    "NCCL Error",
    "NCCL communicator was aborted",
    "Connection closed by peer",
    "Connection reset by peer",
    "Horovod detected that one or more processes exited",
    "Horovod has been shut down",
    "HorovodInternalError",
    "Training worker failed",
    "One or more child processes failed",
    "nodes are not joining",
    "subprocess has exit code",
    "Initialization failed. Please see the error messages above",
    "Error executing job with overrides",
    "Some processes failed",
];

impl Exception {
    /// Of a traceback's last line and the files of its frames.
    pub(super) fn new(name: &str, message: &str, files: &Files) -> Self {
        Self { name: name.to_owned(), message: message.to_owned(), raiser: raiser(name, message, files) }
    }

    /// The name without its package.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Whether its name says nothing about what went wrong: wrappers raise these for what they caught.
    pub(super) fn is_generic(&self) -> bool {
        matches!(
            self.short_name(),
            "RuntimeError" | "Exception" | "SystemExit" | "Exit" | "CalledProcessError" | "error"
        ) || has(&self.message, "aught ")
    }
}

/// What the frames of a traceback say of their files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files {
    /// The innermost is a launcher's.
    pub(super) launcher: bool,
    /// One is of Python's semaphores and shared memory, which lie in `/dev/shm`.
    pub(super) shared_memory: bool,
    /// The innermost is of Python's pipes between processes.
    pub(super) pipe: bool,
}

impl Files {
    pub(super) fn of(file: &str) -> Self {
        let file = file.replace('\\', "/");
        let shared = ["multiprocessing/synchronize.py", "multiprocessing/heap.py", "multiprocessing/shared_memory.py"];
        Self {
            shared_memory: shared.iter().any(|part| has(&file, part)),
            launcher: LAUNCHER_FILES.iter().any(|part| has(&file, part)),
            pipe: has(&file, "multiprocessing/connection.py") || has(&file, "multiprocessing/managers.py"),
        }
    }
}

fn raiser(name: &str, message: &str, files: &Files) -> Raiser {
    let short = name.rsplit('.').next().unwrap_or(name);
    let ends = |names: &[&str]| names.iter().any(|known| short.starts_with(known));
    if short == "KeyboardInterrupt" || short == "BdbQuit" {
        return Raiser::Interrupt;
    }
    let of_command = short == "CalledProcessError" && (files.launcher || names_a_launch(message));
    if ends(LAUNCHERS)
        || of_command
        || (files.launcher && short != "ModuleNotFoundError" && short != "FileNotFoundError")
    {
        return Raiser::Launcher;
    }
    let cut = files.pipe && matches!(short, "EOFError" | "ConnectionRefusedError" | "FileNotFoundError" | "OSError");
    if cut || ends(VICTIMS) || VICTIMS_WORDS.iter().any(|words| has(message, words)) {
        return Raiser::Victim;
    }
    Raiser::Program
}

/// Whether a command that failed was a training rather than a compiler or git.
fn names_a_launch(message: &str) -> bool {
    let tools =
        ["ninja", "nvcc", "gcc", "g++", "'git'", "cmake", "'pip'", "'-m', 'pip'", "ldconfig", "which", "setup.py"];
    let launches = ["python", "torchrun", "accelerate", "deepspeed", "train"];
    !tools.iter().any(|tool| has(message, tool)) && launches.iter().any(|launch| has(message, launch))
}

/// Ends of the names of exceptions that need no colon to be recognised.
const ENDS: &[&str] =
    &["Error", "Exception", "Interrupt", "Exit", "Iteration", "Timeout", "Failure", "NotFound", "Expired", "Quit"];

/// The exception that a line states: its name and what it says. `strict` where nothing but its form says that it is
/// one: then only names that end as exceptions' do.
pub(super) fn stated(text: &str, strict: bool) -> Option<(&str, &str)> {
    let (name, message) = match text.split_once(':') {
        Some((name, message)) if message.is_empty() || message.starts_with([' ', '\t']) => (name, message.trim()),
        Some(_) => return None,
        None => (text, ""),
    };
    let is_part = |part: &str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
    // Ray states what it wraps: `RayTaskError(KeyError)`.
    let plain = name.split_once('(').filter(|(_, inside)| inside.ends_with(')')).map_or(name, |(plain, _)| plain);
    let whole = plain.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') && plain.split('.').all(is_part);
    if !whole || plain.len() > 120 || plain.is_empty() {
        return None;
    }
    let last = plain.rsplit('.').next().unwrap_or(plain);
    if last.ends_with("Warning") {
        return None;
    }
    let known = ENDS.iter().any(|end| last.ends_with(end)) || last == "KilledWorker";
    let capital = last.starts_with(|c: char| c.is_uppercase()) || plain.contains('.');
    let likely = !strict && text.contains(':') && capital && !message.starts_with(|c: char| c.is_ascii_digit());
    (known && (capital || last == "error") || likely).then_some((name, message))
}

/// The phase that a function's name tells.
pub(super) fn phase_of(function: &str, file: &str) -> Option<Phase> {
    const PHASES: &[(Phase, &[&str])] = &[
        (
            Phase::Save,
            &[
                "save_pretrained",
                "save_checkpoint",
                "_save",
                "save_model",
                "save_state",
                "torch_save",
                "_legacy_save",
                "full_state_dict",
                "_full_state_dict",
                "get_model_state_dict",
                "_gather_state_dict",
                "state_dict_to_cpu",
            ],
        ),
        (
            Phase::Eval,
            &[
                "evaluate",
                "evaluation_loop",
                "prediction_loop",
                "prediction_step",
                "validate",
                "validation_step",
                "validation_epoch",
                "eval_step",
                "_evaluate",
                "generate",
            ],
        ),
        (
            Phase::Step,
            &[
                "training_step",
                "train_step",
                "backward",
                "compute_loss",
                "optimizer_step",
                "clip_grad_norm_",
                "train_one_epoch",
                "train_epoch",
                "_inner_training_loop",
                "training_loop",
                "run_training_epoch",
            ],
        ),
        (
            Phase::Load,
            &[
                "from_pretrained",
                "load_dataset",
                "load_state_dict",
                "load_model",
                "load_checkpoint",
                "_find_and_load",
                "prepare_dataset",
                "init_process_group",
                "snapshot_download",
                "hf_hub_download",
                "load_tokenizer",
            ],
        ),
    ];
    let saves = function == "save" && !file.ends_with("image.py");
    if saves {
        return Some(Phase::Save);
    }
    PHASES.iter().find(|(_, names)| names.contains(&function)).map(|(phase, _)| *phase)
}

/// The phase that a frame's line of code tells.
pub(super) fn phase_of_code(code: &str) -> Option<Phase> {
    const CALLS: &[(Phase, &[&str])] = &[
        (Phase::Step, &[".backward(", "optimizer.step("]),
        (Phase::Save, &["save_pretrained(", "torch.save(", "save_checkpoint("]),
        (Phase::Eval, &["evaluate(", ".validate("]),
        (Phase::Load, &["from_pretrained(", "load_dataset(", "load_state_dict("]),
    ];
    CALLS.iter().find(|(_, calls)| calls.iter().any(|call| has(code, call))).map(|(phase, _)| *phase)
}

/// Whether a file belongs to Python or to an installed package rather than to the program.
pub(super) fn is_library(file: &str) -> bool {
    let file = file.replace('\\', "/");
    [
        "site-packages/",
        "dist-packages/",
        "/lib/python3",
        "<frozen",
        "/lib/python2",
        "Lib/runpy.py",
        "/bin/torchrun",
        "/bin/accelerate",
        "/bin/deepspeed",
        "Lib/multiprocessing/",
        "Lib/importlib/",
    ]
    .iter()
    .any(|part| has(&file, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str, message: &str, file: &str) -> Raiser {
        Exception::new(name, message, &Files::of(file)).raiser
    }

    #[test]
    fn launchers_and_victims_are_not_the_program() {
        let cases = [
            ("KeyError", "'labels'", "train.py", Raiser::Program),
            ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "", "x.py", Raiser::Launcher),
            (
                "subprocess.CalledProcessError",
                "Command '['/usr/bin/python', 'train.py']' returned",
                "x.py",
                Raiser::Launcher,
            ),
            ("subprocess.CalledProcessError", "Command '['ninja', '-v']' returned", "x.py", Raiser::Program),
            ("EOFError", "", "/usr/lib/python3.10/multiprocessing/connection.py", Raiser::Victim),
            ("EOFError", "Ran out of input", "load.py", Raiser::Program),
            ("RuntimeError", "Engine core initialization failed. See root cause above.", "x.py", Raiser::Victim),
            ("KeyboardInterrupt", "", "train.py", Raiser::Interrupt),
        ];
        for (name, message, file, raiser) in cases {
            assert_eq!(who(name, message, file), raiser, "{name}: {message}");
        }
    }

    #[test]
    fn an_exception_is_told_from_other_text() {
        let cases = [
            ("ValueError: 3 is not 4", true, true),
            ("KeyboardInterrupt", true, true),
            ("my.package.ShapeError: x", true, true),
            ("jinja2.exceptions.TemplateNotFound: x", true, true),
            ("ray.exceptions.RayTaskError(KeyError): ray::f()", true, true),
            ("MyShape: x is wrong", false, true),
            ("Epoch: 3", false, false),
            ("Done", true, false),
            ("two words: x", false, false),
            ("http://host", false, false),
        ];
        for (text, strict, is) in cases {
            assert_eq!(stated(text, strict).is_some(), is, "{text}");
        }
        assert_eq!(stated("MyShape: x is wrong", true), None);
    }
}
