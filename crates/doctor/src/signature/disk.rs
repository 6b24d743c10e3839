//! Disks without room, which checkpoints meet first.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::has_phrase;
use tonnage_core::failure::Class;

pub(super) const FULL: Signature = Signature {
    name: "disk_full",
    needles: &["No space left on device", "Disk quota exceeded", "database or disk is full"],
    also: &[
        "[Errno ",
        "os error 28",
        "StorageFull",
        ": No space left on device",
        ": Disk quota exceeded",
        "Error: database",
    ],
    follow: 0,
    read: |text| {
        let python = has_phrase(text, "[Errno 28] No space left on device")
            || has_phrase(text, "[Errno 122] Disk quota exceeded");
        let rust = has_phrase(text, "(os error 28)") || has_phrase(text, "kind: StorageFull");
        let shell = text.ends_with(": No space left on device") || text.ends_with(": Disk quota exceeded");
        let database = text.ends_with("OperationalError: database or disk is full");
        let segment = has_phrase(text, "/dev/shm/") || has_phrase(text, "NCCL WARN");
        if (python || rust || shell || database) && !segment && !super::is_talk(text) {
            Reading::whole(FailureCause::DiskFull { is_quota: is_quota(text) })
        } else {
            None
        }
    },
};

/// Whether a line speaks of what one user or project may take of a disk.
pub(crate) fn is_quota(text: &str) -> bool {
    ["quota", "Quota", "EDQUOT", "rrno 122"].iter().any(|words| has_phrase(text, words))
}

/// caffe2/serialize/inline_container.cc: `torch.save` learns only that a write failed.
pub(super) const TORCH_SAVE: Signature = Signature {
    name: "torch_save",
    needles: &["PytorchStreamWriter failed", "unexpected pos "],
    also: &[],
    follow: 0,
    read: |text| {
        let failed = super::is_said(text, "PytorchStreamWriter failed") && has_phrase(text, "file write failed");
        let enforced = has_phrase(text, "enforce fail at inline_container.cc:");
        if failed || (enforced && (has_phrase(text, "file write failed") || has_phrase(text, "unexpected pos "))) {
            Reading::whole(FailureCause::DiskFull { is_quota: false })
        } else {
            None
        }
    },
};

/// Disks that fail, and file systems over a network that went away.
pub(super) const BROKEN: Signature = Signature {
    name: "io_error",
    needles: &[
        "Input/output error",
        "Stale file handle",
        "Transport endpoint is not connected",
        "Read-only file system",
        "Remote I/O error",
    ],
    also: &["[Errno ", "os error ", "failed with ", "rror: "],
    follow: 0,
    read: |text| {
        let numbers = [
            "[Errno 5] ",
            "[Errno 116] ",
            "[Errno 107] ",
            "[Errno 30] ",
            "[Errno 121] ",
            "(os error 5)",
            "(os error 116)",
        ];
        let said =
            numbers.iter().any(|number| has_phrase(text, number)) || has_phrase(text, "failed with Input/output error");
        let cause = FailureCause::Stated { class: Class::IoError, detail: None };
        if said && !super::is_talk(text) { Reading::whole(cause) } else { None }
    },
};
