//! What failures look like, a file each family. A signature is a few needles for the search and a reader for the lines
//! that have one; it is strict, because logs and documents talk about failures that did not happen.
//!
//! One more signature is one line in [`SIGNATURES`] and a sample in `testdata/failures`.

mod crash;
mod cuda;
mod disk;
mod divergence;
mod driver;
mod ending;
mod engine;
mod hardware;
mod host;
mod intel;
mod kernel_image;
mod killed;
mod libraries;
mod mpi;
mod mps;
mod nccl;
mod network;
mod port;
mod protobuf;
mod python_cuda;
mod rendezvous;
mod runtimes;
mod scheduler;
mod shared_memory;
mod tensorflow;
mod torch;
mod torch_async;
mod torchrun;
mod usage;
mod windows;
mod xid;
mod xla;

pub(crate) use self::disk::is_quota;
pub(crate) use self::mpi::{MPI, UCX_NAME};
pub(crate) use self::rendezvous::JOINED;
use super::cause::FailureCause;

/// How one form of one failure is recognised.
pub struct Signature {
    /// A name for programs and for the table in the docs (`torch_memory`).
    pub name: &'static str,
    /// One of these stands in its first line. None is part of another signature's.
    pub needles: &'static [&'static str],
    /// Where its needles are common words, one of these stands in that line too; none where they are not. A line
    /// without is not read. One that begins with an ellipsis follows the needle at once, whole or cut by the line's end.
    pub also: &'static [&'static str],
    /// How many further lines may belong to it.
    pub follow: usize,
    /// Reads the message; `None` where it is something else.
    pub read: fn(&str) -> Option<Reading>,
}

/// What a signature makes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it says; `None` while too little of it has come.
    pub cause: Option<FailureCause>,
    /// Whether further lines can add nothing.
    pub complete: bool,
}

impl Reading {
    fn whole(cause: FailureCause) -> Option<Self> {
        Some(Self { cause: Some(cause), complete: true })
    }

    fn part(cause: Option<FailureCause>) -> Option<Self> {
        Some(Self { cause, complete: false })
    }
}

/// All signatures. The first that reads a line has it, so the precise ones stand before the general.
pub const SIGNATURES: &[Signature] = &[
    torch::MEMORY,
    torch::REST,
    torch::EXABYTE,
    torch::EXPANDABLE_ASSERT,
    torch::NVML_ASSERT,
    torch_async::MEMORY,
    mps::MEMORY,
    mps::BUFFER,
    intel::MEMORY,
    intel::RUNTIME,
    engine::WARM_UP,
    engine::SLOTS,
    python_cuda::CUPY,
    python_cuda::BITSANDBYTES,
    python_cuda::RAPIDS,
    runtimes::TENSORRT,
    runtimes::ONNX,
    runtimes::PADDLE,
    cuda::MEMORY,
    cuda::CHECKED,
    cuda::DRIVER,
    libraries::CUBLAS,
    libraries::CUDNN,
    libraries::CUDNN_ENGINE,
    nccl::MEMORY,
    network::NCCL,
    network::GLOO,
    nccl::TIMEOUT,
    nccl::LAST_WORK,
    nccl::HEARTBEAT,
    nccl::ERROR,
    nccl::PEER,
    nccl::VERBS,
    nccl::CUDA,
    network::RENDEZVOUS,
    rendezvous::TIMEOUT,
    rendezvous::CONNECTION,
    xla::MEMORY,
    xla::HBM,
    xla::CONSTANT,
    tensorflow::TENSOR,
    tensorflow::DEVICE,
    tensorflow::ALLOCATOR,
    tensorflow::UNEXPLAINED,
    engine::START,
    engine::CACHE,
    engine::OTHERS,
    shared_memory::BUS_ERROR,
    shared_memory::SEGMENT,
    killed::WORKER,
    killed::SHELL,
    killed::SIGNAL,
    killed::STATUS,
    killed::POD,
    killed::CONTAINER,
    killed::RAY,
    host::ALLOCATOR,
    host::PYTHON,
    host::ERRNO,
    host::NATIVE,
    host::KERNEL,
    host::SLURM,
    host::SRUN,
    torchrun::ROOT_CAUSE,
    torchrun::EXIT,
    torchrun::MPI,
    mpi::ABORT,
    mpi::BAD,
    mpi::FATAL,
    mpi::UCX,
    mpi::START,
    torchrun::FAILED,
    port::LISTEN,
    port::BIND,
    protobuf::PROTOBUF,
    driver::NO_GPU,
    driver::MISMATCH,
    driver::LOST,
    xid::XID,
    xid::BUS,
    disk::FULL,
    disk::TORCH_SAVE,
    cuda::FAULT,
    cuda::ASSERTION,
    cuda::REPORTED,
    cuda::TRITON,
    cuda::ELEMENTS,
    torch::EXPANDABLE_SHARING,
    crash::SEGMENTATION,
    crash::ABORTED,
    crash::JAVA,
    crash::THROWN,
    scheduler::SLURM,
    scheduler::OTHERS,
    scheduler::EVICTED,
    hardware::ECC,
    hardware::NVLINK,
    kernel_image::IMAGE,
    divergence::LOSS,
    divergence::SCALE,
    ending::AGENT,
    ending::SHELL,
    ending::KEYBOARD,
    windows::PAGING,
    windows::STATUS,
    network::DUPLICATE,
    network::BUSY,
    usage::USAGE,
    disk::BROKEN,
];

/// Whether the line raises or logs `message`: it opens the line, follows an exception's name (`RuntimeError: `), a
/// logger's tag, or stands in a structured record. In backticks, in a sentence or in code it is talk.
fn is_said(text: &str, message: &str) -> bool {
    super::text::places_of(text, message).any(|at| {
        let head = text.get(..at).unwrap_or_default();
        // What stands in backticks is talked of.
        if head.bytes().filter(|byte| *byte == b'`').count() % 2 == 1 {
            return false;
        }
        // A question that quotes it asks what it means.
        if text.ends_with('?') && head.bytes().filter(|byte| *byte == b'"').count() % 2 == 1 {
            return false;
        }
        let head = head.trim_end_matches([' ', '\t']);
        let value = head.strip_suffix('"').is_some_and(|key| key.trim_end().ends_with([':', '=']));
        value || head.is_empty() || head.ends_with([':', ']', '-', ')', '|', '\n'])
    })
}

/// What PyTorch writes behind an error, with backticks of its own; on the error's line where newlines were lost.
const HINTS: &[&str] = &["Search for `", "Compile with `", "CUDA kernel errors might be"];

/// Whether the line talks of something in backticks, as documents do.
fn is_talk(text: &str) -> bool {
    let end = HINTS.iter().filter_map(|hint| super::text::find_phrase(text, hint)).min().unwrap_or(text.len());
    text.get(..end).is_some_and(|text| text.contains('`')) || is_explained(text)
}

/// `The OSError: [Errno 5] text typically occurs when`: a sentence about an error in general.
fn is_explained(text: &str) -> bool {
    const VERBS: &[&str] = &[" typically ", " usually ", " occurs ", " happens ", " means ", " indicates ", " often "];
    ["The ", "This ", "An ", "A "].iter().any(|article| text.starts_with(article))
        && VERBS.iter().any(|verb| super::text::has_phrase(text, verb))
}

/// Whether the line says one of `messages`.
fn says_any(text: &str, messages: &[&str]) -> bool {
    messages.iter().any(|message| is_said(text, message))
}
