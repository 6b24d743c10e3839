//! Windows, where memory that is promised must fit into the paging file, and a crash is a number.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{has_phrase, read_integer, text_after};
use tonnage_core::failure::Class;

pub(super) const PAGING: Signature = Signature {
    name: "paging_file",
    needles: &["WinError 1455]", "os error 1455", "paging file is too small", "页面文件太小"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has_phrase(text, "[WinError 1455]")
            || has_phrase(text, "(os error 1455)")
            || has_phrase(text, "Error: The paging file is too small")
            || has_phrase(text, "Error: 页面文件太小");
        let cause = FailureCause::Stated { class: Class::PagingFile, detail: None };
        if said && !super::is_talk(text) { Reading::whole(cause) } else { None }
    },
};

/// Statuses with which Windows ends a process for a fault of its native code (ntstatus.h): an access violation, an
/// illegal instruction, a full stack, a heap or stack that was overwritten, a library that could not start.
const CRASHES: &[u64] = &[0xC000_0005, 0xC000_001D, 0xC000_00FD, 0xC000_0374, 0xC000_0409, 0xC000_0142];
/// `STATUS_CONTROL_C_EXIT`.
const CONTROL_C: u64 = 0xC000_013A;

/// A process's status as `subprocess`, shells and PyCharm print it: without a sign or with one.
pub(super) const STATUS: Signature = Signature {
    name: "windows_status",
    needles: &["exit status 32212", "exit code 32212", "exitcode: 32212", "exit code -107374", "exitcode: -107374"],
    also: &[],
    follow: 0,
    read: |text| {
        let number = ["exit status ", "exit code ", "exitcode: "].iter().find_map(|words| text_after(text, words))?;
        let status = match number.strip_prefix('-') {
            Some(number) => (1_u64 << 32).checked_sub(read_integer(number)?)?,
            None => read_integer(number)?,
        };
        if super::is_talk(text) {
            return None;
        }
        if CRASHES.contains(&status) {
            return Reading::whole(FailureCause::Crash { pid: None, aborted: false });
        }
        let cause = FailureCause::Stated { class: Class::Interrupted, detail: None };
        if status == CONTROL_C { Reading::whole(cause) } else { None }
    },
};
