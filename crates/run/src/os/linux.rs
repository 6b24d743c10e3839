//! Linux: `prctl` and `/proc`.

use std::ffi::CString;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// The program itself, also where its file was replaced or removed since it started.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Processes below this one whose parent dies become its children.
pub(crate) fn adopt_orphans() {
    // What cannot be had is done without: the processes above and below see this one's death.
    let _ = prctl::set_child_subreaper(true);
}

/// The kernel kills this process when its parent dies.
pub(crate) fn die_with_parent() {
    // As above.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// The kernel wakes this process, if it is stopped, when its parent dies, and again when the next one does.
pub(crate) fn wake_with_parents_death() {
    // As above.
    let _ = prctl::set_pdeathsig(Signal::SIGCONT);
}

/// What this process is called in lists.
pub(crate) fn set_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // A list that says something else misleads nobody.
        let _ = prctl::set_name(&name);
    }
}

/// Whether this child has not ended yet; it is left to be waited for.
pub(crate) fn is_child_running(child: i32) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    matches!(waitid(Id::Pid(Pid::from_raw(child)), flags), Ok(WaitStatus::StillAlive))
}
