//! Disks without room, which checkpoints meet first.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;

pub(super) const FULL: Signature = Signature {
    name: "disk_full",
    needles: &["No space left on device", "Disk quota exceeded"],
    follow: 0,
    read: |text| {
        let python =
            text.contains("[Errno 28] No space left on device") || text.contains("[Errno 122] Disk quota exceeded");
        let rust = text.contains("(os error 28)") || text.contains("kind: StorageFull");
        let shell = text.ends_with(": No space left on device") || text.ends_with(": Disk quota exceeded");
        let segment = text.contains("/dev/shm/");
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
        let failed = text.contains("inline_container.cc:") && text.contains("file write failed");
        if failed { Reading::whole(FailureCause::DiskFull) } else { None }
    },
};
