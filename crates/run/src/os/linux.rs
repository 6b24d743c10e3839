//! Linux: `prctl` and `/proc`.

use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::Command;

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

/// The kernel kills what `command` starts when the thread that started it dies.
pub(crate) fn die_with_parent(command: &mut Command) {
    signal_at_parents_death(command, Signal::SIGKILL);
}

/// The kernel wakes what `command` starts, if it is stopped, when the thread that started it dies, and again when its next parent
/// does.
pub(crate) fn wake_with_parents_death(command: &mut Command) {
    signal_at_parents_death(command, Signal::SIGCONT);
}

/// Asked for before the process becomes the program: a program is milliseconds old when it can ask, and may be stopped before.
#[allow(unsafe_code)]
fn signal_at_parents_death(command: &mut Command, signal: Signal) {
    let ask = move || {
        // As above.
        let _ = prctl::set_pdeathsig(signal);
        Ok(())
    };
    // SAFETY: between fork and exec, `ask` makes one system call: it takes no lock and no memory.
    unsafe { command.pre_exec(ask) };
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
