//! The rendezvous port (torch/csrc/distributed/c10d/socket.cpp).

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::text::{has_phrase, integer_after, text_after};

fn in_use(port: Option<u64>) -> Option<Reading> {
    Reading::whole(FailureCause::PortInUse { port })
}

pub(super) const LISTEN: Signature = Signature {
    name: "port_listen",
    needles: &["server socket has failed to listen on any local network address"],
    also: &[],
    follow: 0,
    read: |text| {
        let message = text_after(text, "The server socket has failed to listen on any local network address.");
        in_use(message.and_then(|message| integer_after(message, "port: ").or_else(|| port_of_address(message))))
    },
};

pub(super) const BIND: Signature = Signature {
    name: "port_bind",
    needles: &[
        "server socket has failed to bind to ",
        "Address already in use",
        "[WinError 10048]",
        "attempting to bind on address",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        if let Some(message) = text_after(text, "The server socket has failed to bind to ") {
            return in_use(port_of_address(&format!("bind to {message}")));
        }
        if let Some(address) = text_after(text, "error while attempting to bind on address ('") {
            return in_use(text_after(address, "', ").and_then(|port| integer_after(port, "")));
        }
        // 98 on Linux, 48 on macOS.
        let raised = has_phrase(text, "OSError: [Errno 98] Address already in use")
            || has_phrase(text, "OSError: [Errno 48] Address already in use")
            || has_phrase(text, "OSError: [WinError 10048] ")
            || text.ends_with("RuntimeError: Address already in use");
        if raised { in_use(None) } else { None }
    },
};

/// `bind to [::]:29500 (errno: 98`, `bind to 0.0.0.0:29500`
fn port_of_address(message: &str) -> Option<u64> {
    let address = text_after(message, "bind to ")?.split(' ').next()?;
    integer_after(address.get(address.rfind(':')?..)?, ":")
}
