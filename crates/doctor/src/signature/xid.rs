//! The NVIDIA driver's errors in the kernel's log.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{has_phrase, integer_after, text_after};

/// Errors of the GPU, its memory or its links (NVIDIA's Xid catalog): not the program's.
const HARDWARE: &[u64] = &[48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 136, 140, 143, 155, 156];

pub(super) const XID: Signature = Signature {
    name: "xid",
    needles: &["NVRM: Xid "],
    also: &[],
    follow: 0,
    read: |text| {
        let message = text_after(text, "NVRM: Xid (")?;
        let code = integer_after(message, "): ")?;
        Reading::whole(FailureCause::Xid { code: Some(code), hardware: HARDWARE.contains(&code) })
    },
};

/// Newer drivers state no number.
pub(super) const BUS: Signature = Signature {
    name: "gpu_off_the_bus",
    needles: &["NVRM: GPU ", "allen off the bus", "NVRM: The NVIDIA GPU ", "GPU lost from the bus"],
    also: &[],
    follow: 0,
    read: |text| {
        let fallen = has_phrase(text, "NVRM: ")
            && (has_phrase(text, "fallen off the bus") || has_phrase(text, "GPU lost from the bus"));
        let named = has_phrase(text, "NVRM: The NVIDIA GPU ") || has_phrase(text, ": RmInitAdapter failed! (");
        if fallen || named { Reading::whole(FailureCause::Xid { code: None, hardware: true }) } else { None }
    },
};
