//! Hosts that cannot be reached, and GPUs that two ranks share: the job never becomes one job.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{has_phrase, text_after};
use tonnage_core::failure::Class;

fn unreachable(host: Option<&str>) -> Option<Reading> {
    let detail =
        host.map(|host| host.trim_end_matches(['.', ',', ')', '\'', '"']).to_owned()).filter(|host| !host.is_empty());
    Reading::whole(FailureCause::Stated { class: Class::Unreachable, detail })
}

/// The rendezvous host (torch/csrc/distributed/c10d/socket.cpp, TCPStore.cpp).
pub(super) const RENDEZVOUS: Signature = Signature {
    name: "rendezvous_unreachable",
    needles: &[
        "client socket has timed out after",
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
        "cannot be retrieved (gai error",
        "server socket cannot be initialized on",
        "ssh: Could not resolve hostname ",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let timed_out = has_phrase(text, "The client socket has timed out after")
            || has_phrase(text, "client socket has timed out after");
        let raised = has_phrase(text, "RendezvousConnectionError: ") || text.ends_with("RendezvousTimeoutError");
        let unresolved =
            has_phrase(text, "network addresses of (") && has_phrase(text, "cannot be retrieved (gai error");
        // One line of many tries is a warning, and says so.
        let launched = has_phrase(text, "ssh: Could not resolve hostname ");
        if (timed_out || raised || unresolved || launched) && !super::is_talk(text) {
            let host = text_after(text, "trying to connect to ")
                .or_else(|| text_after(text, "network addresses of ("))
                .or_else(|| text_after(text, "ssh: Could not resolve hostname "));
            return unreachable(host.and_then(|host| host.trim_start_matches('(').split([' ', ',', ':']).next()));
        }
        None
    },
};

/// NCCL's own connections between ranks.
pub(super) const NCCL: Signature = Signature {
    name: "nccl_unreachable",
    needles: &["Network is unreachable", "No route to host", "no socket interface found", "o interface found"],
    also: &["NCCL WARN", "gloo/transport", "Gloo"],
    follow: 0,
    read: |text| {
        // Of a download the same words are the exception's.
        let is_between_ranks = ["NCCL", "gloo", "Gloo"].iter().any(|words| has_phrase(text, words));
        let host = text_after(text, "onnect to ").and_then(|host| host.split(' ').next());
        if is_between_ranks { unreachable(host) } else { None }
    },
};

/// Gloo, whose ranks could not all connect to each other; who closed or reset a connection was there.
pub(super) const GLOO: Signature = Signature {
    name: "gloo_unreachable",
    needles: &["connectFullMesh failed"],
    also: &["Gloo"],
    follow: 0,
    read: |text| {
        let failed = has_phrase(text, "Gloo connectFullMesh failed with ");
        let was_there = has_phrase(text, " by peer") || super::is_talk(text);
        if failed && !was_there { unreachable(None) } else { None }
    },
};

/// NCCL's check of its ranks' devices.
pub(super) const DUPLICATE: Signature = Signature {
    name: "duplicate_gpu",
    needles: &["Duplicate GPU detected"],
    also: &[],
    follow: 0,
    read: |text| {
        let detail = text_after(text, "Duplicate GPU detected : ").map(|ranks| ranks.chars().take(80).collect());
        let cause = FailureCause::Stated { class: Class::DuplicateGpu, detail };
        if has_phrase(text, "Duplicate GPU detected :") && !super::is_talk(text) { Reading::whole(cause) } else { None }
    },
};

/// A device that another process has alone.
pub(super) const BUSY: Signature = Signature {
    name: "device_busy",
    needles: &["busy or unavailable", "TPU is already in use by", "Device or resource busy: '/dev/"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has_phrase(text, "CUDA-capable device(s) is/are busy or unavailable")
            || has_phrase(text, "rror: all CUDA-capable devices are busy or unavailable")
            || has_phrase(text, "CUDA devices are busy or unavailable")
            || has_phrase(text, "The TPU is already in use by process")
            || has_phrase(text, "TPU is already in use by another process");
        let cause = FailureCause::Stated { class: Class::DeviceBusy, detail: None };
        if said && !super::is_talk(text) { Reading::whole(cause) } else { None }
    },
};
