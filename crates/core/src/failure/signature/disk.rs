//! Disks without room, which checkpoints meet first.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::text::has;

pub(super) const FULL: Signature = Signature {
    name: "disk_full",
    needles: &["No space left on device", "Disk quota exceeded"],
    follow: 0,
    read: |text| {
        let python = has(text, "[Errno 28] No space left on device") || has(text, "[Errno 122] Disk quota exceeded");
        let rust = has(text, "(os error 28)") || has(text, "kind: StorageFull");
        let shell = text.ends_with(": No space left on device") || text.ends_with(": Disk quota exceeded");
        let segment = has(text, "/dev/shm/");
        if (python || rust || shell) && !segment && !text.contains('`') {
            Reading::whole(FailureCause::DiskFull)
        } else {
            None
        }
    },
};

/// caffe2/serialize/inline_container.cc: `torch.save` learns only that a write failed.
pub(super) const TORCH_SAVE: Signature = Signature {
    name: "torch_save",
    needles: &["PytorchStreamWriter failed writing", "PytorchStreamWriter failed closing"],
    follow: 0,
    read: |text| {
        let failed = has(text, "inline_container.cc:") && has(text, "file write failed");
        if failed { Reading::whole(FailureCause::DiskFull) } else { None }
    },
};
