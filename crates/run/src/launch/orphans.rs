//! Processes of a run whose supervisor is gone: found by the attempt's folder that each was told, wherever they were moved to.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::guardian;
use super::tree::{Identity, all_pids, descendants, is_stopped};

/// How often the kernel is asked whether they are gone.
const POLL: Duration = Duration::from_millis(20);
/// How long killed processes may take to vanish.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// The variable by which processes are known.
const MARK: &[u8] = b"TONNAGE_ATTEMPT_DIR=";

/// The processes that live of the run in `folder`, which nobody supervises, with what is below them: the `recorded` ones, and all
/// that were told its folder. Those that keep them are left out, and woken. Others that emptied their environment are not seen.
pub fn processes_of(folder: &Path, recorded: &[Identity]) -> Vec<Identity> {
    let marked = marked_processes(folder).into_iter().chain(recorded.iter().copied().filter(Identity::is_alive));
    let mut pids: Vec<i32> = marked.map(|process| process.pid).collect();
    pids.extend(pids.clone().into_iter().flat_map(|pid| descendants(pid, &[])));
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().filter_map(Identity::of).filter(Identity::is_alive).collect()
}

fn marked_processes(folder: &Path) -> Vec<Identity> {
    let (keepers, others): (Vec<_>, Vec<_>) = told_pids(folder).into_iter().partition(|pid| is_keeper(*pid));
    // They end by themselves, and what they keep, unless somebody stopped them.
    keepers.into_iter().for_each(wake);
    others.into_iter().filter_map(Identity::of).filter(Identity::is_alive).collect()
}

/// All that were told the run's folder, those that keep its commands too.
fn told_pids(folder: &Path) -> Vec<i32> {
    let path = folder.display().to_string();
    let own = std::process::id().cast_signed();
    all_pids().filter(|pid| *pid != own && is_told(*pid, &path)).collect()
}

/// The processes that are stopped and have the file open.
pub fn stopped_holders(file: &Path) -> Vec<i32> {
    let Ok(file) = file.metadata() else { return Vec::new() };
    all_pids().filter(|pid| is_stopped(*pid) && holds(*pid, &file)).collect()
}

fn holds(pid: i32, file: &Metadata) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut open = entries.filter_map(|entry| fs::metadata(entry.path()).ok());
    open.any(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
}

/// Lets a stopped process go on; nothing to any other.
pub fn wake(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
}

fn is_told(pid: i32, run: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut folders = environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(MARK));
    // An id may begin as another does.
    folders.any(|folder| folder.strip_prefix(run.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/')))
}

/// Whether it is a keeper or a guardian.
fn is_keeper(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0);
    let (program, command) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    (program == b"tonnage" && command == b"keep") || program == guardian::NAME.as_bytes()
}

/// Ends the run's processes: asks, waits for `grace`, then kills. Those that were found, and whether none is left.
pub fn end_processes_of(folder: &Path, recorded: &[Identity], grace: Duration) -> (Vec<u32>, bool) {
    let found = processes_of(folder, recorded);
    let pids = found.iter().map(|process| process.pid.cast_unsigned()).collect();
    signal_processes(&found, Signal::SIGTERM);
    if wait_gone(folder, recorded, grace) {
        return (pids, true);
    }
    signal_processes(&processes_of(folder, recorded), Signal::SIGKILL);
    (pids, wait_gone(folder, recorded, AFTER_KILL))
}

fn signal_processes(processes: &[Identity], signal: Signal) {
    for process in processes {
        // One that is gone is what is wanted; a stopped one takes no other signal.
        let _ = kill(Pid::from_raw(process.pid), signal);
        wake(process.pid);
    }
}

fn wait_gone(folder: &Path, recorded: &[Identity], limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        if processes_of(folder, recorded).is_empty() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(POLL);
    }
}
