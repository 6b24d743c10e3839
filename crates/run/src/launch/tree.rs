//! The processes below a process, read from `/proc`.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// How often the kernel is asked whether processes are gone.
const POLL: Duration = Duration::from_millis(20);
/// How often it is asked of processes that are about to be gone.
const DYING_POLL: Duration = Duration::from_millis(2);
/// Ticks a second of `/proc`'s times: USER_HZ, 100 on every Linux architecture in use.
const TICKS: f64 = 100.0;
/// Bytes of a page of `/proc`'s sizes.
const PAGE: u64 = 4096;

/// A process that no other is mistaken for when its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: i32,
    /// When it began, in ticks since the machine did.
    pub began: u64,
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    state: char,
    parent: i32,
    ticks: u64,
    began: u64,
    resident_pages: u64,
}

fn read_stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses too.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        // Its own, and of the children that it has waited for.
        ticks: (11..=14).map_while(number).sum(),
        began: number(19)?,
        resident_pages: number(21)?,
    })
}

impl Identity {
    /// The process called `pid` now.
    pub fn of(pid: i32) -> Option<Self> {
        read_stat(pid).map(|stat| Self { pid, began: stat.began })
    }

    /// Whether it is still there, and no zombie.
    pub fn is_alive(&self) -> bool {
        read_stat(self.pid).is_some_and(|stat| stat.began == self.began && stat.state != 'Z')
    }
}

/// Whether a process of this number runs.
pub fn is_alive(pid: i32) -> bool {
    read_stat(pid).is_some_and(|stat| stat.state != 'Z')
}

/// Whether it was stopped (SIGSTOP, Ctrl-Z).
pub fn is_stopped(pid: i32) -> bool {
    read_stat(pid).is_some_and(|stat| stat.state == 'T')
}

/// The processes of this machine.
pub fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// All processes below `root` that are no zombies, `root` left out, and `spared` with all below them.
pub fn descendants(root: i32, spared: &[i32]) -> Vec<i32> {
    let parents: Vec<(i32, i32, char)> =
        all_pids().filter_map(|pid| read_stat(pid).map(|s| (pid, s.parent, s.state))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found
            .extend(parents.iter().filter(|(pid, of, _)| *of == parent && !spared.contains(pid)).map(|(pid, ..)| *pid));
        at += 1;
    }
    let is_zombie = |pid: &i32| parents.iter().any(|(other, _, state)| other == pid && *state == 'Z');
    found.into_iter().skip(1).filter(|pid| !is_zombie(pid)).collect()
}

/// CPU seconds and resident bytes of `root` and all below it that live.
pub fn tree_usage(root: i32) -> (f64, u64) {
    let pids = std::iter::once(root).chain(child_pids(root));
    let stats = pids.filter_map(read_stat);
    stats.fold((0.0, 0), |(cpu, bytes), s| (cpu + s.ticks as f64 / TICKS, bytes + s.resident_pages * PAGE))
}

/// All below `root`, by the kernel's lists of children: much less to read than all of `/proc`.
fn child_pids(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let pids: Vec<i32> = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            next.extend(&pids);
            found.extend(pids);
        }
    }
    found
}

/// Ends the group of `leader` and all below `root` but what is `spared`: asks, waits for `grace`, then kills. True when
/// none is left.
pub fn end_tree(root: i32, leader: Option<i32>, spared: &[i32], grace: Duration) -> bool {
    signal_tree(root, leader, spared, Signal::SIGTERM);
    if wait_gone(root, spared, grace) {
        return true;
    }
    // What is born between two looks is found by the next.
    for _ in 0..100 {
        signal_tree(root, leader, spared, Signal::SIGKILL);
        if wait_gone(root, spared, POLL) {
            return true;
        }
    }
    false
}

fn signal_tree(root: i32, leader: Option<i32>, spared: &[i32], signal: Signal) {
    // A process that is already gone is what is wanted. All are looked up before the first is asked: its end gives its
    // children to others.
    let pids = descendants(root, spared);
    if let Some(leader) = leader {
        let _ = killpg(Pid::from_raw(leader), signal);
    }
    for pid in pids {
        let _ = kill(Pid::from_raw(pid), signal);
        // A stopped process takes no other signal.
        let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
    }
}

fn wait_gone(root: i32, spared: &[i32], limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        if descendants(root, spared).is_empty() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        sleep(POLL);
    }
}

/// Waits until none of the processes runs; whether that came about.
pub fn wait_dead(pids: &[i32], limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while pids.iter().any(|pid| is_alive(*pid)) {
        if Instant::now() >= until {
            return false;
        }
        sleep(DYING_POLL);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_is_waited_for_until_it_is_dead() {
        let mut keeper = std::process::Command::new("sleep").arg("7108").spawn().unwrap();
        let pid = keeper.id().cast_signed();
        assert!(!wait_dead(&[pid], Duration::ZERO), "it lives");
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        // Not waited for, it is a zombie: that is dead.
        assert!(wait_dead(&[pid, i32::MAX], Duration::from_secs(60)));
        keeper.wait().unwrap();
    }

    #[test]
    fn a_process_is_told_from_a_later_one_of_its_number() {
        let own = Identity::of(std::process::id().cast_signed()).unwrap();
        assert!(own.is_alive());
        assert!(!Identity { began: own.began + 1, ..own }.is_alive());
        assert_eq!(Identity::of(i32::MAX), None);
    }

    #[test]
    fn usage_counts_this_process() {
        let (_, bytes) = tree_usage(std::process::id().cast_signed());
        assert!(bytes > PAGE);
    }
}
