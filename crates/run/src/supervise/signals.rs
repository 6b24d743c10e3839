//! Signals that ask a run to end, taken by a thread of their own; no handler runs anywhere.

use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::launch::Notice;

/// What is taken: Ctrl-C, a polite end, the terminal's end, and a scheduler's warning (SLURM's `--signal`).
const TAKEN: [Signal; 5] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Blocks the signals in this thread and all that it starts, and passes them on as notices. To be called first.
pub(super) fn take_signals(notices: Sender<Notice>) {
    let set: SigSet = TAKEN.into_iter().collect();
    // Where they cannot be blocked they end the supervisor, whose keepers then end the job.
    if set.thread_block().is_err() {
        return;
    }
    thread::spawn(move || {
        while let Ok(signal) = set.wait() {
            if notices.send(Notice::Signal(signal as i32)).is_err() {
                break;
            }
        }
    });
}
