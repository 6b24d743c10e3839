//! [`FailureCause`]: what a message says went wrong, with every number it states.

use crate::exception::{Exception, Raiser};
use crate::memory::GpuMemory;
use crate::signature::JOINED;
use tonnage_core::failure::{Class, Strength};

/// What a message says, with its numbers. Sizes are bytes; what a message leaves out is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// An allocation on the GPU failed in a framework's allocator.
    GpuMemory(GpuMemory),
    /// An allocation on the GPU failed in a library beside the allocator: NCCL, cuBLAS, cuDNN.
    OutsideAllocator {
        /// `NCCL`, `cuBLAS`, `cuDNN`.
        library: &'static str,
        /// What it asked for.
        requested: Option<u64>,
    },
    /// An inference engine refused to start for want of free GPU memory.
    EngineStart {
        /// `vLLM`, `SGLang`.
        engine: &'static str,
        /// Free on the device, or left for the cache.
        free: Option<u64>,
        /// All the device has.
        total: Option<u64>,
        /// What the engine wanted.
        wanted: Option<u64>,
        /// Tokens for which there would be room.
        length: Option<u64>,
    },
    /// The host ran out of memory, and says so.
    HostMemory {
        /// What was asked for.
        requested: Option<u64>,
        /// What the process held when it was killed.
        resident: Option<u64>,
        pid: Option<u64>,
    },
    /// A process was killed by SIGKILL; nobody says by whom. The kernel's memory killer is the usual one.
    Killed {
        pid: Option<u64>,
        /// Whether it was a worker that loads data.
        data_loader: bool,
    },
    /// Shared memory (`/dev/shm`) is full.
    SharedMemory { pid: Option<u64> },
    /// A collective did not finish in time: usually the echo of a rank that died.
    NcclTimeout(Collective),
    /// Communication failed; often the echo of a rank that died.
    NcclError,
    /// The rendezvous port is taken.
    PortInUse { port: Option<u64> },
    /// Packages disagree about protobuf; often printed and not fatal.
    Protobuf,
    /// No GPU can be used.
    NoGpu,
    /// The driver and its library, or the driver and CUDA, are of different versions.
    DriverMismatch,
    /// The driver reports a GPU error to the kernel's log.
    Xid {
        /// The number; `None` where the driver states none.
        code: Option<u64>,
        /// Whether it is the GPU's fault rather than the program's.
        hardware: bool,
    },
    /// A launcher's summary of a worker that failed.
    WorkerFailed(Worker),
    /// No room on a disk.
    DiskFull {
        /// Whether it is what one user or project may take of it.
        is_quota: bool,
    },
    /// The GPU ran a wrong instruction or touched a wrong address.
    CudaFault {
        /// The condition of the kernel that did not hold.
        assertion: Option<String>,
    },
    /// A kernel asks for more than a multiprocessor has, or an op for more elements than it can count.
    KernelLimit,
    /// Memory of expandable segments cannot be shared between processes.
    ExpandableSharing,
    /// A process crashed in native code (SIGSEGV).
    Crash {
        pid: Option<u64>,
        /// Whether it ended itself by `abort()`: after an exception or a timeout that says more.
        aborted: bool,
    },
    /// The scheduler ended the job when its time was over.
    TimeLimit,
    /// An exception that no signature knows.
    Raised(Exception),
    /// SLURM's word that a job, or a step of it, was cancelled; steps are when one of their tasks has failed.
    Cancelled {
        /// Whether it was a step.
        is_step: bool,
    },
    /// What a class says, with a word on it: the architecture that is missing, the host that does not answer.
    Stated {
        class: Class,
        /// The word, as the message has it.
        detail: Option<String>,
    },
}

/// A collective that timed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// `SeqNum` of the collective.
    pub sequence: Option<u64>,
    /// As PyTorch's watchdog names it: `ALLREDUCE`.
    pub op: Option<String>,
    /// How long it ran, in milliseconds.
    pub ran_ms: Option<u64>,
    /// The last one that was begun.
    pub last_enqueued: Option<u64>,
    /// The last one that was completed.
    pub last_completed: Option<u64>,
    /// The process group, as PyTorch names it.
    pub group: Option<String>,
}

/// A worker that a launcher saw fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// Its rank; of a summary's line without one, its rank on its node.
    pub rank: Option<u64>,
    /// Its exit code; a signal is negative; 0 where none is stated.
    pub exit_code: i64,
    pub pid: Option<u64>,
    /// Whether the launcher calls it the first to fail.
    pub first: bool,
    /// Whether the rank counts on its machine alone.
    pub is_local: bool,
    pub host: Option<String>,
}

/// SIGKILL, SIGBUS and SIGSEGV, as `subprocess` states them.
const KILLED: i64 = -9;
const BUS_ERROR: i64 = -7;
const SEGMENTATION: i64 = -11;
/// SIGILL and SIGFPE: native code as well.
const ILLEGAL: i64 = -4;
const ARITHMETIC: i64 = -8;
/// SIGHUP, SIGINT and SIGTERM.
const HANGUP: i64 = -1;
const INTERRUPT: i64 = -2;
const TERMINATE: i64 = -15;

impl FailureCause {
    /// What kind it is.
    pub fn class(&self) -> Class {
        match self {
            Self::GpuMemory(memory) => memory.class(),
            Self::OutsideAllocator { .. } => Class::OutsideAllocator,
            Self::EngineStart { .. } => Class::EngineStart,
            Self::HostMemory { .. } => Class::HostMemory,
            Self::Killed { .. } => Class::Killed,
            Self::SharedMemory { .. } => Class::SharedMemory,
            Self::NcclTimeout(_) => Class::NcclTimeout,
            Self::NcclError => Class::NcclError,
            Self::PortInUse { .. } => Class::PortInUse,
            Self::Protobuf => Class::Protobuf,
            Self::NoGpu => Class::NoGpu,
            Self::DriverMismatch => Class::DriverMismatch,
            Self::Xid { .. } => Class::Xid,
            Self::WorkerFailed(worker) => worker.class(),
            Self::DiskFull { .. } => Class::DiskFull,
            Self::CudaFault { .. } => Class::CudaFault,
            Self::KernelLimit => Class::KernelLimit,
            Self::ExpandableSharing => Class::ExpandableSharing,
            Self::Crash { .. } => Class::Crash,
            Self::TimeLimit => Class::TimeLimit,
            Self::Raised(exception) => match exception.raiser {
                Raiser::Program | Raiser::Aside => Class::Raised,
                // PyTorch's own names for what happens between ranks.
                Raiser::Victim if exception.short_name().starts_with("Dist") => Class::NcclError,
                Raiser::Launcher | Raiser::Victim => Class::WorkerFailed,
                Raiser::Interrupt => Class::Interrupted,
            },
            Self::Cancelled { .. } => Class::Cancelled,
            Self::Stated { class, .. } => *class,
        }
    }

    /// What happened, in words: its class's, but for PyTorch's own message, in which no library found no memory.
    pub fn title(&self) -> &'static str {
        match (self, self.class()) {
            (Self::GpuMemory(_), Class::OutsideAllocator) => {
                "this process holds too much GPU memory beside PyTorch's allocator"
            }
            (_, class) => class.title(),
        }
    }

    /// How much it explains.
    pub fn strength(&self) -> Strength {
        match self {
            Self::Raised(exception) if exception.raiser == Raiser::Aside => Strength::Ending,
            Self::Cancelled { is_step: true } => Strength::Echo,
            Self::Crash { aborted: true, .. } => Strength::Echo,
            Self::Stated { class: Class::Unreachable, detail: Some(detail) } if detail.ends_with(JOINED) => {
                Strength::Echo
            }
            // That a worker is gone, and nobody says by what.
            Self::Stated { class: Class::Killed, .. } => Strength::Ending,
            _ => self.class().strength(),
        }
    }

    /// What an exit status says by itself; 0 says nothing. A shell adds 128 to a signal, Python makes it negative.
    pub fn of_exit_status(status: i64) -> Option<Self> {
        let exit_code = if (129..=192).contains(&status) { 128 - status } else { status };
        (status != 0).then(|| Self::WorkerFailed(Worker { exit_code, first: true, ..Worker::default() }))
    }

    /// The numbers, by name, in the order of the message.
    pub fn figures(&self) -> Vec<(&'static str, Figure)> {
        let mut figures = Figures::default();
        match self {
            Self::GpuMemory(memory) => memory.figures(&mut figures),
            Self::OutsideAllocator { library, requested } => {
                figures.text("library", library);
                figures.bytes("requested", *requested);
            }
            Self::EngineStart { engine, free, total, wanted, length } => {
                figures.text("engine", engine);
                figures.bytes("free", *free);
                figures.bytes("total", *total);
                figures.bytes("wanted", *wanted);
                figures.number("length", *length);
            }
            Self::HostMemory { requested, resident, pid } => {
                figures.bytes("requested", *requested);
                figures.bytes("resident", *resident);
                figures.number("pid", *pid);
            }
            Self::Killed { pid, .. } | Self::SharedMemory { pid } | Self::Crash { pid, .. } => {
                figures.number("pid", *pid)
            }
            Self::NcclTimeout(collective) => collective.figures(&mut figures),
            Self::PortInUse { port } => figures.number("port", *port),
            Self::Xid { code, .. } => figures.number("xid", *code),
            Self::WorkerFailed(worker) => {
                figures.number(if worker.is_local { "local_rank" } else { "rank" }, worker.rank);
                if worker.exit_code != 0 {
                    figures.0.push(("exit_code", Figure::Number(worker.exit_code)));
                }
                figures.number("pid", worker.pid);
                if let Some(host) = &worker.host {
                    figures.text("host", host);
                }
            }
            Self::DiskFull { is_quota: true } => figures.text("limit", "quota"),
            Self::Raised(exception) => figures.text("exception", &exception.name),
            Self::CudaFault { assertion: Some(assertion) } => figures.text("assertion", assertion),
            Self::Stated { detail: Some(detail), .. } => figures.text("detail", detail),
            _ => {}
        }
        figures.0
    }
}

impl Collective {
    fn figures(&self, figures: &mut Figures) {
        figures.number("sequence", self.sequence);
        if let Some(op) = &self.op {
            figures.text("op", op);
        }
        figures.number("ran_ms", self.ran_ms);
        figures.number("last_enqueued", self.last_enqueued);
        figures.number("last_completed", self.last_completed);
    }
}

impl Worker {
    const fn class(&self) -> Class {
        match self.exit_code {
            KILLED => Class::Killed,
            BUS_ERROR => Class::SharedMemory,
            SEGMENTATION | ILLEGAL | ARITHMETIC => Class::Crash,
            // Of those that a launcher ends after the first nobody asks why.
            HANGUP if self.first => Class::Hangup,
            INTERRUPT if self.first => Class::Interrupted,
            TERMINATE if self.first => Class::Terminated,
            _ => Class::WorkerFailed,
        }
    }
}

/// A number or a word of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Bytes, shown in GiB or MiB.
    Bytes(u64),
    /// A count, a process, a code.
    Number(i64),
    Text(String),
}

/// A list of figures that leaves out what is not known.
#[derive(Default)]
pub(crate) struct Figures(pub(crate) Vec<(&'static str, Figure)>);

impl Figures {
    pub(crate) fn bytes(&mut self, name: &'static str, bytes: Option<u64>) {
        self.0.extend(bytes.map(|bytes| (name, Figure::Bytes(bytes))));
    }

    pub(crate) fn number(&mut self, name: &'static str, number: Option<u64>) {
        let number = number.and_then(|number| i64::try_from(number).ok());
        self.0.extend(number.map(|number| (name, Figure::Number(number))));
    }

    pub(crate) fn text(&mut self, name: &'static str, text: &str) {
        self.0.push((name, Figure::Text(text.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_of_shells_and_of_python() {
        let class = |status| FailureCause::of_exit_status(status).map(|cause| cause.class());
        assert_eq!([137, -9].map(class), [Some(Class::Killed); 2]);
        assert_eq!([135, -7].map(class), [Some(Class::SharedMemory); 2]);
        assert_eq!([139, -11].map(class), [Some(Class::Crash); 2]);
        assert_eq!([1, 2, -6, i64::MIN, i64::MAX].map(class), [Some(Class::WorkerFailed); 5]);
        assert_eq!([143, 130, 129].map(class), [Class::Terminated, Class::Interrupted, Class::Hangup].map(Some));
        assert_eq!(class(0), None);
    }
}
