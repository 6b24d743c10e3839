//! [`Exception`]: what a program raised, where, in which phase; told apart from what launchers and victims raise.

use crate::text::has_phrase;

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the traceback names it; not yet fit for a terminal.
    pub file: String,
    /// In the source file, from one.
    pub line: u64,
    pub function: String,
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
    "WorkerGroupFailureException",
    "TuneError",
];
/// Files of launchers: what is raised there is about a worker.
const LAUNCHER_FILES: &[&str] = &[
    "torch/distributed/launch",
    "torch/distributed/run.py",
    "torch/distributed/elastic/",
    "torchelastic/",
    "accelerate/commands/",
    "deepspeed/launcher/",
    "horovod/runner/",
    "torch/multiprocessing/spawn.py",
    "torch_xla/distributed/xla_multiprocessing.py",
];
/// Exceptions of those who lost the other end, by the end of their names.
const VICTIMS: &[&str] = &[
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
    "successfully reached monitoredBarrier, but received errors",
    "failed to pass monitoredBarrier",
    "Horovod detected that one or more processes exited",
    "Horovod has been shut down",
    "HorovodInternalError",
    "Training worker failed",
    "Pin memory thread exited unexpectedly",
    "One or more child processes failed",
    "nodes are not joining",
    "subprocess has exit code",
    "Initialization failed. Please see the error messages above",
    "Error executing job with overrides",
    "Some processes failed",
];

impl Exception {
    /// Of a traceback's last line and the files of its frames.
    pub(crate) fn new(name: &str, message: &str, files: &Files) -> Self {
        Self { name: name.to_owned(), message: message.to_owned(), raiser: raiser(name, message, files) }
    }

    /// The name without its package.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Whether its name says nothing about what went wrong: wrappers raise these for what they caught.
    pub(crate) fn is_generic(&self) -> bool {
        matches!(
            self.short_name(),
            "RuntimeError" | "Exception" | "SystemExit" | "Exit" | "CalledProcessError" | "error" | "EnforceNotMet"
        ) || self.message.trim_end_matches(['-', ' ']).ends_with(':')
            || has_phrase(&self.message, "aught ")
            || has_phrase(&self.message, "root error(s) found")
            || self.message.starts_with("Graph execution error")
    }
}

/// What the frames of a traceback say of their files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Files {
    /// The innermost is a launcher's.
    pub(crate) launcher: bool,
    /// One is of Python's semaphores and shared memory, which lie in `/dev/shm`.
    pub(crate) shared_memory: bool,
    /// The innermost is of Python's pipes between processes.
    pub(crate) pipe: bool,
}

/// Files whose other end is another process of the job. Of a download or a server the same exceptions say what is wrong.
const PIPES: &[&str] = &[
    "multiprocessing/connection.py",
    "multiprocessing/managers.py",
    "multiprocessing/reduction.py",
    "multiprocessing/popen_",
    "multiprocessing/queues.py",
    "multiprocessing/spawn.py",
    "torch/distributed/",
    "torch/utils/data/",
    "vllm/",
    "zmq/",
];

impl Files {
    pub(crate) fn of(file: &str) -> Self {
        let file = file.replace('\\', "/");
        let shared = ["multiprocessing/synchronize.py", "multiprocessing/heap.py", "multiprocessing/shared_memory.py"];
        Self {
            shared_memory: shared.iter().any(|part| has_phrase(&file, part)),
            launcher: LAUNCHER_FILES.iter().any(|part| has_phrase(&file, part)),
            pipe: PIPES.iter().any(|part| has_phrase(&file, part)),
        }
    }
}

fn raiser(name: &str, message: &str, files: &Files) -> Raiser {
    let short = name.rsplit('.').next().unwrap_or(name);
    let ends = |names: &[&str]| names.iter().any(|known| short.starts_with(known));
    if short == "KeyboardInterrupt" || short == "BdbQuit" {
        return Raiser::Interrupt;
    }
    // A notebook's head states the name alone.
    let of_command = short == "CalledProcessError" && (files.launcher || message.is_empty() || names_a_launch(message));
    // A launcher of launchers (colossalai run) says that it could not run one.
    let of_launch = short == "Error" && has_phrase(message, "failed to run ") && names_a_launch(message);
    // What else a launcher raises is its own: a flag that is missing, a file of hosts that cannot be read.
    // torch.multiprocessing's, above what a worker raised.
    let is_head = short == "Exception" && message.is_empty();
    let is_end = files.launcher && (is_head || matches!(short, "SystemExit" | "Exit"));
    if ends(LAUNCHERS) || of_command || of_launch || is_end {
        return Raiser::Launcher;
    }
    let peer = ["Connection closed by peer", "Connection reset by peer"].iter().any(|words| has_phrase(message, words));
    let of_ranks = files.pipe || ["gloo/", "c10d", "TCPStore"].iter().any(|words| has_phrase(message, words));
    let cut = files.pipe
        && matches!(
            short,
            "EOFError"
                | "ConnectionRefusedError"
                | "ConnectionResetError"
                | "BrokenPipeError"
                | "FileNotFoundError"
                | "OSError"
        );
    if cut || (peer && of_ranks) || ends(VICTIMS) || VICTIMS_WORDS.iter().any(|words| has_phrase(message, words)) {
        return Raiser::Victim;
    }
    Raiser::Program
}

/// Whether a command that failed was a training rather than a compiler or git.
fn names_a_launch(message: &str) -> bool {
    let tools =
        ["ninja", "nvcc", "gcc", "g++", "'git'", "cmake", "'pip'", "'-m', 'pip'", "ldconfig", "which", "setup.py"];
    let launches = ["python", "torchrun", "accelerate", "deepspeed", "train"];
    !tools.iter().any(|tool| has_phrase(message, tool)) && launches.iter().any(|launch| has_phrase(message, launch))
}

/// Ends of the names of exceptions that need no colon to be recognised.
const ENDS: &[&str] =
    &["Error", "Exception", "Interrupt", "Exit", "Iteration", "Timeout", "Failure", "NotFound", "Expired", "Quit"];

/// Of those, the ones that are words of their own in other lines too (`Iteration: 4000`): no name without more before them.
const WORDS: &[&str] = &["Interrupt", "Iteration", "Failure", "NotFound", "Expired", "Quit"];

/// Words before a colon that are no exceptions' names, though they begin with a capital.
const LABELS: &[&str] = &["Node", "Hint", "Note", "Info", "Usage", "Example", "Details", "Message", "Arguments"];

/// The exception that a line states: its name and what it says. `strict` where nothing but its form says that it is
/// one: then only names that end as exceptions' do.
pub(crate) fn exception_stated(text: &str, strict: bool) -> Option<(&str, &str)> {
    let (name, message) = match text.split_once(':') {
        // Pages that tidy quotation marks take the blank away.
        Some((name, message)) if message.is_empty() || message.starts_with([' ', '\t', '\'', '‘', '“']) => {
            (name, message.trim())
        }
        // Typed by hand.
        Some((name, message)) if name.ends_with("Error") && message.starts_with(char::is_alphabetic) => (name, message),
        Some(_) => return None,
        None => (text, ""),
    };
    // TensorFlow 1 points to what it printed before.
    let name = name.strip_suffix(" (see above for traceback)").unwrap_or(name);
    let is_part = |part: &str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
    // Ray states what it wraps: `RayTaskError(KeyError)`.
    let plain = name.split_once('(').filter(|(_, inside)| inside.ends_with(')')).map_or(name, |(plain, _)| plain);
    let whole = plain.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') && plain.split('.').all(is_part);
    if !whole || plain.len() > 120 || plain.is_empty() {
        return None;
    }
    let last = plain.rsplit('.').next().unwrap_or(plain);
    if last.ends_with("Warning") || WORDS.contains(&plain) || LABELS.contains(&plain) {
        return None;
    }
    // A logger's level.
    if ["[WARNING]", "[INFO]", "[ERROR]", "[DEBUG]"].iter().any(|level| message.starts_with(level)) {
        return None;
    }
    // A figure of a table.
    if plain == "Error" && message.parse::<f64>().is_ok() {
        return None;
    }
    let known = ENDS.iter().any(|end| last.ends_with(end)) || matches!(last, "KilledWorker" | "gaierror" | "herror");
    let capital = last.starts_with(|c: char| c.is_uppercase()) || plain.contains('.');
    let likely = !strict && text.contains(':') && capital && !message.starts_with(|c: char| c.is_ascii_digit());
    (known && (capital || matches!(last, "error" | "gaierror" | "herror")) || likely).then_some((name, message))
}

/// Whether a file belongs to Python or to an installed package rather than to the program.
pub(crate) fn is_library(file: &str) -> bool {
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
    .any(|part| has_phrase(&file, part))
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
            ("Error", "failed to run torchrun --nnodes=1 train.py on 10.0.0.1", "", Raiser::Launcher),
            ("Error", "failed to run the tokenizer", "", Raiser::Program),
            ("EOFError", "", "/usr/lib/python3.10/multiprocessing/connection.py", Raiser::Victim),
            ("EOFError", "Ran out of input", "load.py", Raiser::Program),
            ("RuntimeError", "Engine core initialization failed. See root cause above.", "x.py", Raiser::Victim),
            ("Exception", "", "torch/multiprocessing/spawn.py", Raiser::Launcher),
            ("Exception", "", "train.py", Raiser::Program),
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
            ("StopIteration", true, true),
            ("Iteration: 4000\tLoss: -1.5", true, false),
            ("Iteration: 4000\tLoss: -1.5", false, false),
            ("AbortedError (see above for traceback): the ranks are gone", true, true),
            ("RuntimeError:worker 3 is gone", true, true),
            ("RuntimeError::text", true, false),
            ("my.package.ShapeError: x", true, true),
            ("jinja2.exceptions.TemplateNotFound: x", true, true),
            ("ray.exceptions.RayTaskError(KeyError): ray::f()", true, true),
            ("MyShape: x is wrong", false, true),
            ("Epoch: 3", false, false),
            ("Node: 'model/dense/MatMul'", false, false),
            ("Done", true, false),
            ("two words: x", false, false),
            ("http://host", false, false),
        ];
        for (text, strict, is) in cases {
            assert_eq!(exception_stated(text, strict).is_some(), is, "{text}");
        }
        assert_eq!(exception_stated("MyShape: x is wrong", true), None);
    }
}
