//! The host's memory: allocators that say so, the kernel, SLURM.

use super::{Reading, Signature, is_said};
use crate::failure::cause::FailureCause;
use crate::failure::text::{after, has, integer_after, size_after};

fn host(requested: Option<u64>) -> Option<Reading> {
    Reading::whole(FailureCause::HostMemory { requested, resident: None, pid: None })
}

/// c10/core/impl/alloc_cpu.cpp
pub(super) const ALLOCATOR: Signature = Signature {
    name: "host_allocator",
    needles: &["DefaultCPUAllocator: "],
    follow: 0,
    read: |text| {
        let message = after(text, "DefaultCPUAllocator: ")?;
        let refused = message.starts_with("can't allocate memory: ") || message.starts_with("not enough memory: ");
        if refused { host(size_after(message, "you tried to allocate ")) } else { None }
    },
};

/// Python's own, and numpy's with its numbers.
pub(super) const PYTHON: Signature = Signature {
    name: "host_python",
    needles: &["MemoryError"],
    follow: 0,
    read: |text| {
        let name =
            text.strip_prefix("numpy.core._exceptions.").or_else(|| text.strip_prefix("numpy._core._exceptions."));
        let name = name.unwrap_or(text);
        let rest = name.strip_prefix("MemoryError").or_else(|| name.strip_prefix("_ArrayMemoryError"))?;
        if rest.is_empty() || rest.starts_with(": ") { host(size_after(rest, "Unable to allocate ")) } else { None }
    },
};

/// `ENOMEM`
pub(super) const ERRNO: Signature = Signature {
    name: "host_errno",
    needles: &["Cannot allocate memory"],
    follow: 0,
    read: |text| {
        let raised = has(text, "[Errno 12] Cannot allocate memory") || text.ends_with(": Cannot allocate memory");
        if raised && !text.contains('`') { host(None) } else { None }
    },
};

/// The kernel's log: `Memory cgroup out of memory: Killed process 7 (python) total-vm:..kB, anon-rss:..kB`.
pub(super) const KERNEL: Signature = Signature {
    name: "host_kernel",
    needles: &["Killed", "oom-kill:constraint="],
    follow: 0,
    read: |text| {
        let killed = after(text, "Killed process ");
        let kernel = has(text, "anon-rss:") || has(text, "oom-kill:constraint=");
        let pid = killed.and_then(|killed| integer_after(killed, "")).or_else(|| integer_after(text, ",pid="));
        let resident = size_after(text, "anon-rss:");
        if kernel { Reading::whole(FailureCause::HostMemory { requested: None, resident, pid }) } else { None }
    },
};

pub(super) const SLURM: Signature = Signature {
    name: "slurm_oom",
    needles: &["oom_kill event", "oom-kill event"],
    follow: 0,
    read: |text| {
        let said = has(text, "slurmstepd") && integer_after(text, "Detected ").is_some();
        if said && !text.contains('`') { host(None) } else { None }
    },
};

pub(super) const SRUN: Signature = Signature {
    name: "srun_oom",
    needles: &["Out Of Memory"],
    follow: 0,
    read: |text| {
        let srun = has(text, "srun: error: ") && has(text, ": task") && text.ends_with(": Out Of Memory");
        if srun || is_said(text, "slurmstepd: error: Out Of Memory") { host(None) } else { None }
    },
};
