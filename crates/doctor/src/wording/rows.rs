//! Words and the classes that they speak of, in small letters.

use tonnage_core::failure::Class;

/// What a text has that speaks of a class: of every group one, in small letters.
pub(super) struct Row {
    pub(super) class: Class,
    pub(super) groups: &'static [&'static [&'static str]],
    /// Whether an exception speaks of it in these words too; else only a line of a shell, launcher or library.
    pub(super) is_raised: bool,
}

const fn raised(class: Class, groups: &'static [&'static [&'static str]]) -> Row {
    Row { class, groups, is_raised: true }
}

const fn said(class: Class, groups: &'static [&'static [&'static str]]) -> Row {
    Row { class, groups, is_raised: false }
}

/// What is short, by whom.
const SHORT: &[&str] = &[
    "out of memory",
    "out of gpu memory",
    "outofmemory",
    "failed to allocate",
    "memory allocation fail",
    "memoryallocation",
    "insufficient memory",
    "not enough memory",
    "alloc failed",
    "allocation failed",
    "alloc_failed",
];
const DEVICES: &[&str] =
    &["cuda", "gpu", "hiperror", "hip error", "hip out", "vram", "device memory", "npu ", "xpu", "mps backend", "hbm"];
/// Words of a connection that is not made, and who makes it: a hub's is an exception as any other.
const UNCONNECTED: &[&str] = &[
    "failed to connect",
    "connection refused",
    "connection timed out",
    "no route to host",
    "name or service not known",
    "temporary failure in name resolution",
    "network is unreachable",
    "could not resolve host",
    "client socket has timed out",
];
const RANKS: &[&str] =
    &["c10d", "tcpstore", "rendezvous", "rdzv", "master_addr", "socket.cpp", "etcd", "gloo", "ssh:", "pdsh", "nccl"];

/// What PaddlePaddle says of a signal.
const OF_THE_SYSTEM: &[&str] = &["` is detected by the operating system"];

/// The precise ones first.
pub(super) const ROWS: &[Row] = &[
    raised(Class::Terminated, &[OF_THE_SYSTEM, &["`termination signal"]]),
    raised(
        Class::Crash,
        &[
            OF_THE_SYSTEM,
            &["`segmentation fault", "`bus error", "`process abort", "`illegal instr", "`erroneous arith"],
        ],
    ),
    raised(Class::KernelLimit, &[&["out of resource"], &["shared memory", "registers", "required:"]]),
    raised(Class::KernelLimit, &[&["invalid configuration argument", "too many resources requested for launch"]]),
    raised(Class::Killed, &[&["killed by signal"], &["signal:killed", "signal: killed"]]),
    raised(Class::GpuMemory, &[SHORT, DEVICES]),
    raised(Class::HostMemory, &[&["oom when allocating tensor"], &["device:cpu"]]),
    raised(Class::GpuMemory, &[&["oom when allocating tensor"]]),
    raised(
        Class::GpuMemory,
        &[&["resourceexhausted", "resource_exhausted", "resource exhausted"], &["oom", "alloca", "exhausted: out"]],
    ),
    raised(
        Class::SharedMemory,
        &[
            &["/dev/shm", "shared memory", "</torch_"],
            &["no space", "not enough", "exhaust", "bus error", "too small", "insufficient", "cannot allocate"],
        ],
    ),
    raised(
        Class::HostMemory,
        &[&[
            "cannot allocate memory",
            "bad_alloc",
            "unable to allocate ",
            "oom-kill",
            "oom_kill",
            "memory cgroup",
            "exceeded memory limit",
            "memory limit exceeded",
            "java heap space",
            "gc overhead limit exceeded",
            // R, Julia, MATLAB, Intel's Fortran.
            "cannot allocate vector of size",
            "outofmemoryerror()",
            "exceeds maximum array size",
            "insufficient virtual memory",
        ]],
    ),
    said(Class::HostMemory, &[&["out of memory", "out-of-memory", "oom killer", "oomkilled"]]),
    raised(
        Class::DiskFull,
        &[&[
            "no space left on device",
            "kein speicherplatz mehr verfügbar",
            "设备上没有空间",
            "disk quota exceeded",
            "edquot",
            "errno 122",
            "filesystemquotaexceeded",
            "storagefull",
            "not enough free disk",
            "not enough disk space",
            "insufficient disk",
            "disk is full",
            "no usable temporary directory",
        ]],
    ),
    raised(
        Class::IoError,
        &[&[
            "input/output error",
            "stale file handle",
            "transport endpoint is not connected",
            "read-only file system",
            "remote i/o error",
        ]],
    ),
    raised(
        Class::NoKernelImage,
        &[&[
            "no kernel image",
            "nobinaryforgpu",
            "no_binary_for_gpu",
            "unable to find code object",
            "invalid device function",
        ]],
    ),
    raised(
        Class::DriverMismatch,
        &[&[
            "driver version is insufficient",
            "insufficientdriver",
            "driver/library version mismatch",
            "nvml/rm version mismatch",
            "librmversionmismatch",
            "driver on your system is too old",
            "update your driver to a newer version",
            "forward compatibility was attempted",
            "compiled with an unsupported toolchain",
        ]],
    ),
    raised(
        Class::NoGpu,
        &[&[
            "no cuda gpus",
            "no hip gpus",
            "no cuda-capable device",
            "no nvidia driver",
            "no cuda device",
            "no gpu found",
            "no supported gpu",
            "your machine only has: []",
            "no gpu detected",
            "no gpu available",
            "no gpus available",
            "no gpu is available",
            "cuda is not available",
            "cuda not available",
            "cuda unavailable",
            "gpu is not available",
            "gpu not available",
            "torch.cuda.is_available() is false",
            "invalid device ordinal",
            "not compiled with cuda enabled",
            "cuda_error_no_device",
            "cudaerrornodevice",
            "cuda driver initialization failed",
            "unable to find a gpu",
            "cannot find any torch accelerator",
            // NVML's, of a UUID that no GPU or slice of one has, and of no driver.
            "nvmlerror_notfound",
            "nvmlerror_librarynotfound",
            "nvmlerror_drivernotloaded",
        ]],
    ),
    // A slice of a GPU that is not there (any more).
    raised(
        Class::NoGpu,
        &[
            &["mig-", "mig device", "mig instance", "mig uuid"],
            &["not found", "unknown device", "no such", "not find", "does not exist", "not available"],
        ],
    ),
    said(Class::NoGpu, &[&["nvidia-container-cli"], &["error", "fail"]]),
    raised(
        Class::GpuHardware,
        &[&["uncorrectable ecc", "ecc error", "eccuncorrectable", "ecc_uncorrectable", "nvlink error"]],
    ),
    said(Class::Xid, &[&["nvrm"], &["xid", "fallen off", "lost", "rminit", "gsp"]]),
    raised(
        Class::CudaFault,
        &[&[
            "illegal memory access",
            "illegaladdress",
            "illegal_address",
            "device-side assert",
            "misaligned address",
            "illegal instruction was encountered",
            "unspecified launch failure",
            "launchfailure",
            "launch_failed",
            "launch timed out",
            "failed with error 700",
            "failed! 700",
            "status_execution_failed",
            "memory access fault by gpu",
        ]],
    ),
    raised(
        Class::PortInUse,
        &[&[
            "address already in use",
            "eaddrinuse",
            "errno: 98",
            "errno 98",
            "winerror 10048",
            "one usage of each socket",
        ]],
    ),
    raised(Class::Unreachable, &[UNCONNECTED, RANKS]),
    said(
        Class::NcclTimeout,
        &[
            &["timed out", "timeout", "watchdog caught"],
            &["collective", "watchdog", "nccl", "allreduce", "monitoredbarrier", "hccl"],
        ],
    ),
    said(
        Class::NcclError,
        &[&["nccl", "hccl", "rccl", "gloo"], &["error", "fail", "abort", "connection closed", "nccl warn"]],
    ),
    raised(
        Class::Divergence,
        &[
            &["loss", "gradient", "grad norm", "grad_norm", "logits", "parameter"],
            &[
                "is nan",
                "are nan",
                "nan or inf",
                "nan/inf",
                "became nan",
                "contains nan",
                "found nan",
                "nan detected",
                "nan encountered",
                "nan loss",
                "non-finite",
                "not finite",
                "infinite",
                "diverge",
                "tensor([[nan",
                "tensor([nan",
            ],
        ],
    ),
    said(
        Class::TimeLimit,
        &[
            &["time limit", "walltime", "wall time", "wall clock limit", "runlimit"],
            &["exceeded", "reached", "cancelled", "killed", "due to", "hit "],
        ],
    ),
    // JAX guesses that another task "has failed, got preempted, or crashed".
    said(
        Class::Preempted,
        &[&[
            "was preempted",
            "been preempted",
            "being preempted",
            "due to preemption",
            "preempted by",
            "job preempted",
        ]],
    ),
    said(Class::Evicted, &[&["evicted"]]),
    said(
        Class::Usage,
        &[&[
            "unrecognized arguments",
            "unrecognized option",
            "unknown option",
            "invalid option",
            "invalid choice",
            "arguments are required",
            "no such option",
            "missing option",
            "missing argument",
            "unexpected extra argument",
            "can't open file",
            "command not found",
            "未找到命令",
            "is not recognized as",
            "job submission failed",
            "unable to allocate resources",
        ]],
    ),
    said(
        Class::Killed,
        &[&[
            "sigkill",
            "signal 9",
            "signal: 9",
            "exit code 137",
            "exit code is 137",
            "exit status 137",
            "exitcode 137",
            "exitcode: 137",
            "code: 137",
            "exitcode: -9",
            "exit code -9",
            "return code -9",
        ]],
    ),
    said(
        Class::Crash,
        &[&[
            "segmentation fault",
            "sigsegv",
            "signal 11",
            "signal: 11",
            "exit code 139",
            "exit code -11",
            "exitcode: -11",
            "sigabrt",
            "sigill",
            "sigfpe",
            "core dumped",
            "access violation",
            "double free",
            "段错误",
            "fatal python error",
        ]],
    ),
    said(Class::Terminated, &[&["sigterm", "signal 15", "signal: 15"]]),
    said(Class::Hangup, &[&["sighup"]]),
    said(Class::Interrupted, &[&["sigint", "ctrl-c", "ctrl+c", "terminated by signal 2"]]),
    raised(Class::Interrupted, &[&["keyboardinterrupt"]]),
];
