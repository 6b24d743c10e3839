//! Windows, where memory that is promised must fit into the paging file.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::class::Class;
use crate::failure::text::has;

pub(super) const PAGING: Signature = Signature {
    name: "paging_file",
    needles: &["WinError 1455]", "os error 1455", "paging file is too small", "页面文件太小"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has(text, "[WinError 1455]")
            || has(text, "(os error 1455)")
            || has(text, "Error: The paging file is too small")
            || has(text, "Error: 页面文件太小");
        let cause = FailureCause::Stated { class: Class::PagingFile, detail: None };
        if said && !text.contains('`') { Reading::whole(cause) } else { None }
    },
};
