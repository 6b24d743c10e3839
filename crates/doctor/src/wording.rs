//! What a line that is known to be fatal speaks of: what was raised at a traceback's end, or the last words of a log.
//!
//! Signatures are strict, for they read lines anywhere, most of which are talk. Of a line whose place already says that
//! it is fatal, its words are enough, in whatever form a library puts them.

use tonnage_core::failure::Class;

use crate::cause::{Collective, FailureCause, Worker};
use crate::memory::GpuMemory;
use crate::signature::is_quota;
use crate::text::has_phrase;

/// A longer text is read up to here.
const READ: usize = 1500;

/// What a text has that speaks of a class: of every group one, in small letters.
struct Row {
    class: Class,
    groups: &'static [&'static [&'static str]],
    /// Whether an exception speaks of it in these words too; else only a line of a shell, launcher or library.
    is_raised: bool,
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

/// The precise ones first.
const ROWS: &[Row] = &[
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
    said(Class::Preempted, &[&["preempted", "due to preemption"]]),
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
    said(Class::Interrupted, &[&["sigint", "ctrl-c", "ctrl+c", "keyboardinterrupt"]]),
];

/// What an exception's words speak of, where its name and place say nothing but that it was raised.
pub(crate) fn of_exception(name: &str, message: &str) -> Option<FailureCause> {
    let small = small(&format!("{name}: {message}"));
    ROWS.iter().find(|row| row.is_raised && row.speaks(&small)).map(|row| row.cause(&small))
}

/// What a line speaks of that is among a log's last words; where nothing else says that it is an error, the words
/// stand where programs put an error's: at an end, or behind a colon.
pub(crate) fn of_line(text: &str, is_error: bool) -> Option<FailureCause> {
    let small = small(text);
    let row = ROWS.iter().find(|row| row.speaks(&small))?;
    let stated = |word: &&str| {
        let rest = small.trim_end_matches(['.', '!', ')']);
        // A sentence of a document begins with it too, and goes on.
        let opens = small.strip_prefix(*word).is_some_and(|after| !after.trim_start().starts_with(char::is_alphabetic));
        opens || rest.ends_with(*word) || small.contains(&format!(": {word}"))
    };
    let is_stated = row.groups.iter().flat_map(|words| *words).any(stated);
    (is_error || is_stated).then(|| row.cause(&small))
}

fn small(text: &str) -> String {
    crate::traceback::cut_text(text, READ).to_lowercase()
}

impl Row {
    fn cause(&self, small: &str) -> FailureCause {
        match cause_of(self.class) {
            FailureCause::DiskFull { .. } => FailureCause::DiskFull { is_quota: is_quota(small) },
            cause => cause,
        }
    }

    fn speaks(&self, small: &str) -> bool {
        self.groups.iter().all(|words| words.iter().any(|word| has_phrase(small, word)))
    }
}

/// A cause of the class, of which nothing else is known.
pub(crate) fn cause_of(class: Class) -> FailureCause {
    match class {
        Class::GpuMemory => FailureCause::GpuMemory(GpuMemory { backend: "CUDA", ..GpuMemory::default() }),
        Class::HostMemory => FailureCause::HostMemory { requested: None, resident: None, pid: None },
        Class::SharedMemory => FailureCause::SharedMemory { pid: None },
        Class::DiskFull => FailureCause::DiskFull { is_quota: false },
        Class::NoGpu => FailureCause::NoGpu,
        Class::DriverMismatch => FailureCause::DriverMismatch,
        Class::KernelLimit => FailureCause::KernelLimit,
        Class::CudaFault => FailureCause::CudaFault { assertion: None },
        Class::PortInUse => FailureCause::PortInUse { port: None },
        Class::NcclTimeout => FailureCause::NcclTimeout(Collective::default()),
        Class::NcclError => FailureCause::NcclError,
        Class::TimeLimit => FailureCause::TimeLimit,
        Class::WorkerFailed => FailureCause::WorkerFailed(Worker::default()),
        Class::Xid => FailureCause::Xid { code: None, hardware: false },
        Class::Killed => FailureCause::Killed { pid: None, data_loader: false },
        Class::Crash => FailureCause::Crash { pid: None, aborted: false },
        class => FailureCause::Stated { class, detail: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_small_and_in_any_form_tell_the_class() {
        for row in ROWS {
            assert!(row.groups.iter().flat_map(|words| *words).all(|word| word.to_lowercase() == *word));
        }
        let cases = [
            (
                "RuntimeError",
                "merge: failed: cudaErrorIllegalAddress: an illegal memory access",
                Some(Class::CudaFault),
            ),
            ("SafetensorError", "IoError(Os { code: 122, kind: FilesystemQuotaExceeded })", Some(Class::DiskFull)),
            ("XpuError", "XPU memory allocation failed, asked 3 GiB", Some(Class::GpuMemory)),
            ("AssertionError", "CUDA unavailable, invalid device 0 requested", Some(Class::NoGpu)),
            ("ConnectionError", "hub: Connection refused", None),
            ("RuntimeError", "worker 3 is killed by signal:killed", Some(Class::Killed)),
            ("KeyError", "'labels'", None),
        ];
        for (name, message, class) in cases {
            assert_eq!(of_exception(name, message).map(|cause| cause.class()), class, "{message}");
        }
        let class = |text: &str| of_line(text, false).map(|cause| cause.class());
        assert_eq!(class("write: No space left on device"), Some(Class::DiskFull));
        assert_eq!(class("launcher: worker 3 got signal 9"), Some(Class::Killed));
        assert_eq!([class("epoch 3 ends"), class("grep \"out of memory\" log | wc")], [None, None]);
        assert!(of_line("worker 3: signal 9 came", true).is_some());
    }
}
