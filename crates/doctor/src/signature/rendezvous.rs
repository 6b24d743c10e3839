//! Ranks that wait for each other outside collectives: the store, barriers, the first connection. All are echoes.

use super::{Reading, Signature, is_said, says_any};
use crate::cause::{Collective, FailureCause};
use crate::text::{has_phrase, integer_after, text_after};
use tonnage_core::failure::Class;

/// How the store's word on who came ends: `1/2 clients joined`.
pub(crate) const JOINED: &str = " joined";

pub(super) const TIMEOUT: Signature = Signature {
    name: "store_timeout",
    needles: &[
        "failed to pass monitoredBarrier in",
        "seconds waiting for clients",
        "seconds waiting for workers",
        "ms, keys: /",
        "DistStoreError: Socket Timeout",
        "store based barrier on rank",
        "ms for recv operation to complete",
        "ms for send operation to complete",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has_phrase(text, "failed to pass monitoredBarrier in ")
            || has_phrase(text, "DistStoreError: ")
            || (has_phrase(text, "gloo/transport/") && has_phrase(text, "Timed out waiting "))
            || is_said(text, "Timed out initializing process group in store based barrier on rank")
            || is_said(text, "wait timeout after ");
        // Who is not there yet may have died on its way: no more than an echo.
        let joined =
            text_after(text, "seconds waiting for ").and_then(|rest| rest.split_once(". ")?.1.split('.').next());
        let joined = joined.filter(|joined| said && joined.ends_with(JOINED));
        if let Some(detail) = joined.filter(|joined| joined.starts_with(|c: char| c.is_ascii_digit())) {
            let detail = Some(detail.to_owned());
            return Reading::whole(FailureCause::Stated { class: Class::Unreachable, detail });
        }
        let milliseconds = ["monitoredBarrier in ", "wait timeout after ", "Timed out waiting "];
        let ran_ms = milliseconds.iter().find_map(|words| {
            let number = integer_after(text, words)?;
            text_after(text, words)?
                .trim_start_matches(|digit: char| digit.is_ascii_digit())
                .trim_start()
                .starts_with("ms")
                .then_some(number)
        });
        let collective = Collective { ran_ms, ..Collective::default() };
        if said { Reading::whole(FailureCause::NcclTimeout(collective)) } else { None }
    },
};

pub(super) const CONNECTION: Signature = Signature {
    name: "store_connection",
    needles: &[
        "NCCL communicator was aborted",
        "is setting up NCCL communicator",
        "failed to connect to any network address",
        "failed to recv, got 0 bytes",
        "Connection reset by peer",
    ],
    also: &["Error: ", "communicator was aborted"],
    follow: 0,
    read: |text| {
        let setting_up = has_phrase(text, "DistBackendError: ") && has_phrase(text, "but store->get(");
        let said = says_any(
            text,
            &[
                "NCCL communicator was aborted on rank",
                "The client socket has failed to connect to any network address",
                "failed to recv, got 0 bytes",
            ],
        );
        let reset = ["RuntimeError: Connection reset by peer", "DistNetworkError: Connection reset by peer"];
        let reset = reset.iter().any(|message| text.ends_with(message));
        if setting_up || said || reset { Reading::whole(FailureCause::NcclError) } else { None }
    },
};
