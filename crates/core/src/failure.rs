//! [`Class`]: the kinds of failure, each with its name, its title, how much it explains and whether a restart helps.
//!
//! One enum for everybody: what the doctor advises and what `tonnage run` does about a failure are matches over it.

/// The kinds of failure.
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
    /// An engine that runs has no room for another request.
    EngineCapacity,
    /// The host's memory.
    HostMemory,
    /// Windows' paging file, which is the host's memory that may be promised.
    PagingFile,
    /// SIGKILL from somebody.
    Killed,
    /// `/dev/shm`.
    SharedMemory,
    /// A collective waited in vain.
    NcclTimeout,
    /// NCCL or Gloo: a collective failed, or a peer closed its connection.
    NcclError,
    /// Ranks cannot reach each other, or the rendezvous host.
    Unreachable,
    /// The port is taken.
    PortInUse,
    /// Two ranks use one GPU.
    DuplicateGpu,
    /// The GPU is another process's alone.
    DeviceBusy,
    /// Two packages want different versions of protobuf.
    Protobuf,
    /// The program sees no GPU.
    NoGpu,
    /// The driver is older than CUDA needs, or was updated under a running kernel.
    DriverMismatch,
    /// The build has no kernels for this GPU.
    NoKernelImage,
    /// The driver's error.
    Xid,
    /// Memory or links of the GPU are broken.
    GpuHardware,
    /// The machine went away.
    NodeFailure,
    /// A Python exception, or one of C++.
    Raised,
    /// An error that the program stated in words of its own, which no other class knows.
    Reported,
    /// The loss is no number any more.
    Divergence,
    /// A worker failed with an exit code.
    WorkerFailed,
    /// The command line was not accepted.
    Usage,
    /// The disk is full.
    DiskFull,
    /// The disk, or the file system over a network, failed.
    IoError,
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
    /// The scheduler gave the machine to another job.
    Preempted,
    /// The scheduler put the job back into its queue.
    Requeued,
    /// Somebody took the job off.
    Cancelled,
    /// Kubernetes took the pod off its node.
    Evicted,
    /// SIGINT: Ctrl-C, or a notebook's stop.
    Interrupted,
    /// SIGTERM from somebody.
    Terminated,
    /// The terminal or the connection was closed.
    Hangup,
}

/// Every class with its name for programs and its title for people.
pub const CLASSES: &[(Class, &str, &str)] = &[
    (Class::GpuMemory, "gpu_memory", "the job needs more memory than the GPU has"),
    (Class::Neighbour, "neighbour", "another process holds the GPU's memory"),
    (Class::Fragmentation, "fragmentation", "the allocator's cache is in pieces too small"),
    (Class::AllocatorCap, "allocator_cap", "memory is free, but a limit or a private pool keeps it"),
    (Class::OutsideAllocator, "outside_allocator", "a library beside the allocator found no GPU memory"),
    (Class::EngineStart, "engine_start", "an inference engine found too little free at its start"),
    (Class::EngineCapacity, "engine_capacity", "an inference engine has no room for another request"),
    (Class::HostMemory, "host_memory", "the host's memory ran out"),
    (Class::PagingFile, "paging_file", "Windows' paging file is too small (the host's memory)"),
    (Class::Killed, "killed", "a process was killed (SIGKILL), most likely for the host's memory"),
    (Class::SharedMemory, "shared_memory", "shared memory (/dev/shm) is full"),
    (Class::NcclTimeout, "nccl_timeout", "a collective timed out"),
    (Class::NcclError, "nccl_error", "communication between ranks failed"),
    (Class::Unreachable, "unreachable", "ranks cannot reach each other or the rendezvous host"),
    (Class::PortInUse, "port_in_use", "the rendezvous port cannot be had"),
    (Class::DuplicateGpu, "duplicate_gpu", "two ranks use the same GPU"),
    (Class::DeviceBusy, "device_busy", "the device is in use by another process alone"),
    (Class::Protobuf, "protobuf", "packages disagree about protobuf"),
    (Class::NoGpu, "no_gpu", "no GPU can be used"),
    (Class::DriverMismatch, "driver_mismatch", "driver and libraries are of different versions"),
    (Class::NoKernelImage, "no_kernel_image", "this build has no kernels for this GPU"),
    (Class::Xid, "xid", "the driver reports an error of the GPU (Xid)"),
    (Class::GpuHardware, "gpu_hardware", "memory or links of the GPU are broken (ECC, NVLink)"),
    (Class::NodeFailure, "node_failure", "a machine went away"),
    (Class::Raised, "raised", "the program raised an exception"),
    (Class::Reported, "reported", "the log ends with an error in the program's own words"),
    (Class::Divergence, "divergence", "the training diverged (NaN, or a loss scale at its minimum)"),
    (Class::WorkerFailed, "worker_failed", "a worker failed"),
    (Class::Usage, "usage", "the command could not be run as it was written"),
    (Class::DiskFull, "disk_full", "the disk is full"),
    (Class::IoError, "io_error", "a disk or network file system failed"),
    (Class::CudaFault, "cuda_fault", "a kernel failed on the GPU"),
    (Class::KernelLimit, "kernel_limit", "a kernel asks for more than its limits; not memory"),
    (Class::ExpandableSharing, "expandable_sharing", "memory of expandable segments cannot be shared"),
    (Class::Crash, "crashed", "a process crashed in native code (SIGSEGV and the like)"),
    (Class::TimeLimit, "time_limit", "the scheduler's time limit was reached"),
    (Class::Preempted, "preempted", "the machine was taken back for another job (preemption)"),
    (Class::Requeued, "requeued", "the scheduler put the job back into its queue"),
    (Class::Cancelled, "cancelled", "the job was cancelled"),
    (Class::Evicted, "evicted", "Kubernetes took the pod off its node"),
    (Class::Interrupted, "interrupted", "somebody interrupted it (Ctrl-C, SIGINT)"),
    (Class::Terminated, "terminated", "it was told to end (SIGTERM)"),
    (Class::Hangup, "hangup", "its terminal or connection was closed (SIGHUP)"),
];

/// How much a finding explains, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// Often printed and not fatal.
    Warning,
    /// Often what follows from another rank's death.
    Echo,
    /// Told to end from outside; nothing failed, or somebody gave up.
    Ending,
    /// A death without a reason.
    Death,
    /// It explains that the job ended.
    Cause,
}

/// Every strength with its name for programs.
pub const STRENGTHS: &[(Strength, &str)] = &[
    (Strength::Warning, "warning"),
    (Strength::Echo, "echo"),
    (Strength::Ending, "ending"),
    (Strength::Death, "death"),
    (Strength::Cause, "cause"),
];

/// Whether the same job may simply be started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// From its last checkpoint, as it is.
    Restart,
    /// As it is, but on another machine or GPU.
    RestartElsewhere,
    /// The same job fails again: change something first.
    Change,
    /// Somebody ended it: nothing is to be repaired.
    Stopped,
}

impl Class {
    /// Its name for programs: `gpu_memory`.
    pub fn name(self) -> &'static str {
        CLASSES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// What happened, in words.
    pub fn title(self) -> &'static str {
        CLASSES.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }

    /// How much it explains.
    pub const fn strength(self) -> Strength {
        match self {
            Self::Protobuf => Strength::Warning,
            Self::Killed | Self::Crash => Strength::Death,
            Self::Cancelled | Self::Interrupted | Self::Terminated | Self::Hangup | Self::Reported => Strength::Ending,
            Self::NcclTimeout | Self::NcclError | Self::WorkerFailed => Strength::Echo,
            Self::GpuMemory
            | Self::Neighbour
            | Self::Fragmentation
            | Self::AllocatorCap
            | Self::OutsideAllocator
            | Self::EngineStart
            | Self::EngineCapacity
            | Self::HostMemory
            | Self::PagingFile
            | Self::SharedMemory
            | Self::Unreachable
            | Self::PortInUse
            | Self::DuplicateGpu
            | Self::DeviceBusy
            | Self::NoGpu
            | Self::DriverMismatch
            | Self::NoKernelImage
            | Self::Xid
            | Self::GpuHardware
            | Self::NodeFailure
            | Self::Raised
            | Self::Divergence
            | Self::Usage
            | Self::DiskFull
            | Self::IoError
            | Self::CudaFault
            | Self::KernelLimit
            | Self::ExpandableSharing
            | Self::TimeLimit
            | Self::Preempted
            | Self::Requeued
            | Self::Evicted => Strength::Cause,
        }
    }

    /// Whether a restart helps.
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::TimeLimit
            | Self::Preempted
            | Self::Requeued
            | Self::Evicted
            | Self::Terminated
            | Self::Hangup
            | Self::NcclTimeout
            | Self::NcclError
            | Self::IoError => Verdict::Restart,
            Self::Xid | Self::GpuHardware | Self::NodeFailure | Self::Neighbour | Self::DeviceBusy => {
                Verdict::RestartElsewhere
            }
            Self::Cancelled | Self::Interrupted => Verdict::Stopped,
            Self::GpuMemory
            | Self::Fragmentation
            | Self::AllocatorCap
            | Self::OutsideAllocator
            | Self::EngineStart
            | Self::EngineCapacity
            | Self::HostMemory
            | Self::PagingFile
            | Self::Killed
            | Self::SharedMemory
            | Self::Unreachable
            | Self::PortInUse
            | Self::DuplicateGpu
            | Self::Protobuf
            | Self::NoGpu
            | Self::DriverMismatch
            | Self::NoKernelImage
            | Self::Raised
            | Self::Reported
            | Self::Divergence
            | Self::WorkerFailed
            | Self::Usage
            | Self::DiskFull
            | Self::CudaFault
            | Self::KernelLimit
            | Self::ExpandableSharing
            | Self::Crash => Verdict::Change,
        }
    }
}

impl Strength {
    /// Its name for programs: `cause`.
    pub fn name(self) -> &'static str {
        STRENGTHS.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }
}

impl Verdict {
    /// Its name for programs: `restart`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::RestartElsewhere => "restart_elsewhere",
            Self::Change => "change",
            Self::Stopped => "stopped",
        }
    }

    /// What it means, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Restart => "may be started again as it is, from its last checkpoint",
            Self::RestartElsewhere => "may be started again as it is, on another machine or GPU",
            Self::Change => "fails again as it is: change something first",
            Self::Stopped => "was ended on purpose: nothing is to be repaired",
        }
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
        assert!(STRENGTHS.is_sorted());
    }
}
