//! [`FailureCause`]: what a message says went wrong, with every number it states; and the [`Class`] it belongs to.

use super::memory::GpuMemory;

/// What a message says, with its numbers. Sizes are bytes; what a message leaves out is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// An allocation on the GPU failed in a framework's allocator.
    GpuMemory(GpuMemory),
    /// An allocation on the GPU failed in a library beside the allocator: NCCL, cuBLAS, cuDNN.
    OutsideAllocator {
        /// Whose.
        library: &'static str,
        /// What it asked for.
        requested: Option<u64>,
    },
    /// An inference engine refused to start for want of free GPU memory.
    EngineStart {
        /// Which.
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
        /// The process.
        pid: Option<u64>,
    },
    /// A process was killed by SIGKILL; nobody says by whom. The kernel's memory killer is the usual one.
    Killed {
        /// The process.
        pid: Option<u64>,
        /// Whether it was a worker that loads data.
        data_loader: bool,
    },
    /// Shared memory (`/dev/shm`) is full.
    SharedMemory {
        /// The process.
        pid: Option<u64>,
    },
    /// A collective did not finish in time: usually the echo of a rank that died.
    NcclTimeout(Collective),
    /// Communication failed; often the echo of a rank that died.
    NcclError,
    /// The rendezvous port is taken.
    PortInUse {
        /// Which.
        port: Option<u64>,
    },
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
    DiskFull,
    /// The GPU ran a wrong instruction or touched a wrong address.
    CudaFault,
    /// A kernel asks for more than a multiprocessor has, or an op for more elements than it can count.
    KernelLimit,
    /// Memory of expandable segments cannot be shared between processes.
    ExpandableSharing,
    /// A process crashed in native code (SIGSEGV).
    Crash {
        /// The process.
        pid: Option<u64>,
    },
    /// The scheduler ended the job when its time was over.
    TimeLimit,
}

/// A collective that timed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// Its number.
    pub sequence: Option<u64>,
    /// `ALLREDUCE`.
    pub op: Option<String>,
    /// How long it ran, in milliseconds.
    pub ran_ms: Option<u64>,
    /// The last one that was completed.
    pub last_completed: Option<u64>,
}

/// A worker that a launcher saw fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// Its rank; of a summary's line without one, its rank on its node.
    pub rank: Option<u64>,
    /// Its exit code; a signal is negative.
    pub exit_code: i64,
    /// Its process.
    pub pid: Option<u64>,
    /// Whether the launcher calls it the first to fail.
    pub first: bool,
}

/// The kinds of causes; each has advice of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The job needs more than the GPU has.
    GpuMemory,
    /// Other processes hold what would have been enough.
    Neighbour,
    /// The allocator's cache holds enough, in pieces.
    Fragmentation,
    /// Memory is free, but a limit forbids it.
    AllocatorCap,
    /// Memory outside the allocator.
    OutsideAllocator,
    /// An engine found too little at its start.
    EngineStart,
    /// The host's memory.
    HostMemory,
    /// SIGKILL from somebody.
    Killed,
    /// `/dev/shm`.
    SharedMemory,
    /// A collective waited in vain.
    NcclTimeout,
    /// Communication failed.
    NcclError,
    /// The port is taken.
    PortInUse,
    /// Protobuf versions.
    Protobuf,
    /// No GPU.
    NoGpu,
    /// Driver versions.
    DriverMismatch,
    /// The driver's error.
    Xid,
    /// A worker failed with an exit code.
    WorkerFailed,
    /// The disk.
    DiskFull,
    /// A fault on the GPU.
    CudaFault,
    /// A kernel's limit; not memory.
    KernelLimit,
    /// Sharing memory of expandable segments.
    ExpandableSharing,
    /// A crash in native code.
    Crash,
    /// The scheduler's time limit.
    TimeLimit,
}

/// Every class with its name for programs and its title for people.
pub const CLASSES: &[(Class, &str, &str)] = &[
    (Class::GpuMemory, "gpu_memory", "the job needs more memory than the GPU has"),
    (Class::Neighbour, "neighbour", "another process holds the GPU's memory"),
    (Class::Fragmentation, "fragmentation", "the allocator's cache is in pieces too small"),
    (Class::AllocatorCap, "allocator_cap", "memory is free, but a limit or a private pool keeps it"),
    (Class::OutsideAllocator, "outside_allocator", "a library beside the allocator found no GPU memory"),
    (Class::EngineStart, "engine_start", "an inference engine found too little free at its start"),
    (Class::HostMemory, "host_memory", "the host's memory ran out"),
    (Class::Killed, "killed", "a process was killed (SIGKILL), most likely for the host's memory"),
    (Class::SharedMemory, "shared_memory", "shared memory (/dev/shm) is full"),
    (Class::NcclTimeout, "nccl_timeout", "a collective timed out"),
    (Class::NcclError, "nccl_error", "communication between ranks failed"),
    (Class::PortInUse, "port_in_use", "the rendezvous port cannot be had"),
    (Class::Protobuf, "protobuf", "packages disagree about protobuf"),
    (Class::NoGpu, "no_gpu", "no GPU can be used"),
    (Class::DriverMismatch, "driver_mismatch", "driver and libraries are of different versions"),
    (Class::Xid, "xid", "the driver reports an error of the GPU (Xid)"),
    (Class::WorkerFailed, "worker_failed", "a worker failed"),
    (Class::DiskFull, "disk_full", "the disk is full"),
    (Class::CudaFault, "cuda_fault", "a kernel failed on the GPU"),
    (Class::KernelLimit, "kernel_limit", "a kernel asks for more than its limits; not memory"),
    (Class::ExpandableSharing, "expandable_sharing", "memory of expandable segments cannot be shared"),
    (Class::Crash, "crashed", "a process crashed in native code (SIGSEGV)"),
    (Class::TimeLimit, "time_limit", "the scheduler's time limit was reached"),
];

impl Class {
    /// Its name for programs: `gpu_memory`.
    pub fn name(self) -> &'static str {
        CLASSES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// What happened, in words.
    pub fn title(self) -> &'static str {
        CLASSES.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }

    /// How much it explains: 3 a cause, 2 a death without a reason, 1 often the echo of another rank's death, 0 a
    /// warning.
    pub const fn strength(self) -> u8 {
        match self {
            Self::Killed | Self::Crash => 2,
            Self::NcclTimeout | Self::NcclError | Self::WorkerFailed => 1,
            Self::Protobuf => 0,
            _ => 3,
        }
    }
}

/// SIGKILL, SIGBUS and SIGSEGV, as `subprocess` states them.
const KILLED: i64 = -9;
const BUS_ERROR: i64 = -7;
const SEGMENTATION: i64 = -11;

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
            Self::DiskFull => Class::DiskFull,
            Self::CudaFault => Class::CudaFault,
            Self::KernelLimit => Class::KernelLimit,
            Self::ExpandableSharing => Class::ExpandableSharing,
            Self::Crash { .. } => Class::Crash,
            Self::TimeLimit => Class::TimeLimit,
        }
    }

    /// What an exit status says by itself; 0 says nothing. A shell adds 128 to a signal, Python makes it negative.
    pub fn of_exit_status(status: i64) -> Option<Self> {
        let exit_code = if (129..=192).contains(&status) { 128 - status } else { status };
        (status != 0).then(|| Self::WorkerFailed(Worker { exit_code, ..Worker::default() }))
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
            Self::Killed { pid, .. } | Self::SharedMemory { pid } | Self::Crash { pid } => figures.number("pid", *pid),
            Self::NcclTimeout(collective) => collective.figures(&mut figures),
            Self::PortInUse { port } => figures.number("port", *port),
            Self::Xid { code, .. } => figures.number("xid", *code),
            Self::WorkerFailed(worker) => {
                figures.number("rank", worker.rank);
                figures.0.push(("exit_code", Figure::Number(worker.exit_code)));
                figures.number("pid", worker.pid);
            }
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
        figures.number("last_completed", self.last_completed);
    }
}

impl Worker {
    const fn class(&self) -> Class {
        match self.exit_code {
            KILLED => Class::Killed,
            BUS_ERROR => Class::SharedMemory,
            SEGMENTATION => Class::Crash,
            _ => Class::WorkerFailed,
        }
    }
}

/// A number or a word of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A size.
    Bytes(u64),
    /// A count, a process, a code.
    Number(i64),
    /// A word.
    Text(String),
}

/// A list of figures that leaves out what is not known.
#[derive(Default)]
pub(super) struct Figures(pub(super) Vec<(&'static str, Figure)>);

impl Figures {
    pub(super) fn bytes(&mut self, name: &'static str, bytes: Option<u64>) {
        self.0.extend(bytes.map(|bytes| (name, Figure::Bytes(bytes))));
    }

    pub(super) fn number(&mut self, name: &'static str, number: Option<u64>) {
        let number = number.and_then(|number| i64::try_from(number).ok());
        self.0.extend(number.map(|number| (name, Figure::Number(number))));
    }

    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        self.0.push((name, Figure::Text(text.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_titles_short() {
        for (at, (class, name, title)) in CLASSES.iter().enumerate() {
            assert!(CLASSES[..at].iter().all(|row| row.0 != *class && row.1 != *name), "{name}");
            assert!(title.len() <= 70 && class.name() == *name, "{name}");
        }
    }

    #[test]
    fn exit_statuses_of_shells_and_of_python() {
        let class = |status| FailureCause::of_exit_status(status).map(|cause| cause.class());
        assert_eq!([137, -9].map(class), [Some(Class::Killed); 2]);
        assert_eq!([135, -7].map(class), [Some(Class::SharedMemory); 2]);
        assert_eq!([139, -11].map(class), [Some(Class::Crash); 2]);
        assert_eq!([1, 2, -15, i64::MIN, i64::MAX].map(class), [Some(Class::WorkerFailed); 5]);
        assert_eq!(class(0), None);
    }
}
