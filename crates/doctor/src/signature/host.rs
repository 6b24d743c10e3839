//! The host's memory: allocators that say so, the kernel, SLURM.

use super::{Reading, Signature, is_said};
use crate::cause::FailureCause;
use crate::text::{has_phrase, integer_after, size_after, text_after};

fn host(requested: Option<u64>) -> Option<Reading> {
    Reading::whole(FailureCause::HostMemory { requested, resident: None, pid: None })
}

/// `c10/core/impl/alloc_cpu.cpp`
pub(super) const ALLOCATOR: Signature = Signature {
    name: "host_allocator",
    needles: &["DefaultCPUAllocator: ", "Buy new RAM!"],
    also: &[],
    follow: 0,
    read: |text| {
        if has_phrase(text, "not enough memory: you tried to allocate ") && has_phrase(text, "Buy new RAM!") {
            return host(size_after(text, "you tried to allocate "));
        }
        let message = text_after(text, "DefaultCPUAllocator: ")?;
        let refused = message.starts_with("can't allocate memory: ") || message.starts_with("not enough memory: ");
        if refused { host(size_after(message, "you tried to allocate ")) } else { None }
    },
};

/// Python's own, and numpy's with its numbers.
pub(super) const PYTHON: Signature = Signature {
    name: "host_python",
    needles: &["MemoryError"],
    also: &["MemoryError\n", "MemoryError\r", "MemoryError: "],
    follow: 0,
    read: |text| {
        let name =
            text.strip_prefix("numpy.core._exceptions.").or_else(|| text.strip_prefix("numpy._core._exceptions."));
        let name = name.unwrap_or(text);
        let rest = name.strip_prefix("MemoryError").or_else(|| name.strip_prefix("_ArrayMemoryError"))?;
        let device = ["out_of_memory: CUDA", "cuMem", " of device memory"].iter().any(|words| has_phrase(rest, words));
        if (rest.is_empty() || rest.starts_with(": ")) && !device {
            host(size_after(rest, "Unable to allocate "))
        } else {
            None
        }
    },
};

/// `OSError: [Errno 12]`.
pub(super) const ERRNO: Signature = Signature {
    name: "host_errno",
    needles: &["Cannot allocate memory"],
    also: &[],
    follow: 0,
    read: |text| {
        let raised = has_phrase(text, "[Errno 12] Cannot allocate memory")
            || text.ends_with(": Cannot allocate memory")
            || text.ends_with(": Cannot allocate memory (12)");
        if raised && !super::is_talk(text) { host(None) } else { None }
    },
};

/// C++, Arrow and Rust.
pub(super) const NATIVE: Signature = Signature {
    name: "host_native",
    needles: &["std::bad_alloc", "malloc of size ", "memory allocation of "],
    also: &["what():  std::bad_alloc", ": std::bad_alloc", "ArrowMemoryError: ", " bytes failed"],
    follow: 0,
    read: |text| {
        if text.ends_with(": std::bad_alloc") || text.ends_with("what():  std::bad_alloc") {
            return host(None);
        }
        if let Some(message) = text_after(text, "ArrowMemoryError: malloc of size ") {
            return host(integer_after(message, ""));
        }
        let requested = integer_after(text.strip_prefix("memory allocation of ")?, "");
        if text.ends_with(" bytes failed") { host(requested) } else { None }
    },
};

/// The kernel's log: `Memory cgroup out of memory: Killed process 7 (python) total-vm:..kB, anon-rss:..kB`.
pub(super) const KERNEL: Signature = Signature {
    name: "host_kernel",
    needles: &["Killed", "oom-kill:constraint=", "Kill process ", "invoked oom-killer: ", "killed by the OOM killer"],
    also: &["anon-rss:", "oom-kill:constraint=", "or sacrifice child", "gfp_mask=", "of this unit has been"],
    follow: 0,
    read: |text| {
        let killed = text_after(text, "Killed process ").or_else(|| text_after(text, "ut of memory: Kill process "));
        let kernel = ["anon-rss:", "oom-kill:constraint=", "or sacrifice child", "invoked oom-killer: gfp_mask="]
            .iter()
            .any(|words| has_phrase(text, words))
            || has_phrase(text, "A process of this unit has been killed by the OOM killer");
        let pid = killed.and_then(|killed| integer_after(killed, "")).or_else(|| integer_after(text, ",pid="));
        let resident = size_after(text, "anon-rss:");
        if kernel { Reading::whole(FailureCause::HostMemory { requested: None, resident, pid }) } else { None }
    },
};

pub(super) const SLURM: Signature = Signature {
    name: "slurm_oom",
    needles: &["oom_kill event", "oom-kill event", "exceeded memory limit (", "memory limit at some point"],
    also: &[],
    follow: 0,
    read: |text| {
        let limit = text.ends_with("memory limit at some point.") || text.ends_with(", being killed");
        let said = has_phrase(text, "slurmstepd") && (integer_after(text, "Detected ").is_some() || limit);
        if said && !super::is_talk(text) { host(None) } else { None }
    },
};

pub(super) const SRUN: Signature = Signature {
    name: "srun_oom",
    needles: &["Out Of Memory"],
    also: &[],
    follow: 0,
    read: |text| {
        let srun = has_phrase(text, "srun: error: ") && has_phrase(text, ": task") && text.ends_with(": Out Of Memory");
        if srun || is_said(text, "slurmstepd: error: Out Of Memory") { host(None) } else { None }
    },
};
