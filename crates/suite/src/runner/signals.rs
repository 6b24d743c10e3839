//! Signals that ask a suite to end, taken by a thread of their own; no handler runs anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// What is taken: Ctrl-C, a polite end, the terminal's end.
const TAKEN: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// How often this process was asked to end.
pub(super) struct Signals(Arc<AtomicUsize>);

/// Blocks the signals in this thread and all that it starts. To be called first.
pub(super) fn take_signals() -> Signals {
    let count = Arc::new(AtomicUsize::new(0));
    let set: SigSet = TAKEN.into_iter().collect();
    // Where they cannot be blocked they end this process; its runs live on and are taken up again.
    if set.thread_block().is_ok() {
        let counted = Arc::clone(&count);
        thread::spawn(move || {
            while set.wait().is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    Signals(count)
}

impl Signals {
    pub(super) fn times_asked(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
