//! What processes wait for, and which signals they take: what `/proc` says of a job that hangs or is to be warned.

use std::fs;

use super::tree::descendants;

/// So many processes are named.
const NAMED: usize = 4;

/// What the processes below `root` do, in words: `python 17 sleeps in futex_wait_queue`.
pub fn waits_for(root: i32) -> String {
    let pids = descendants(root, &[]);
    let mut words: Vec<String> = pids.iter().filter_map(|pid| process_state(*pid)).take(NAMED).collect();
    if pids.len() > words.len() && !words.is_empty() {
        words.push(format!("{} more", pids.len() - words.len()));
    }
    words.join(", ")
}

fn process_state(pid: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let name = status_field(&status, "Name:")?;
    let state = match status_field(&status, "State:")?.chars().next()? {
        'R' => "runs",
        'S' => "sleeps",
        'D' => "waits for a device",
        'T' | 't' => "is stopped",
        'Z' => "is dead",
        _ => "is in another state",
    };
    // The kernel's function, where it tells: 0 says nothing.
    let place = fs::read_to_string(format!("/proc/{pid}/wchan")).ok().filter(|place| place.len() > 1);
    Some(format!("{name} {pid} {state}{}", place.map_or_else(String::new, |place| format!(" in {place}"))))
}

/// Whether process `pid` has a handler for `signal`; one that has none dies of it.
pub fn catches_signal(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status_field(&status, "SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal - 1).ok().and_then(|place| 1_u64.checked_shl(place));
    bit.is_some_and(|bit| caught & bit != 0)
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let own = std::process::id();
        assert!(process_state(own.cast_signed()).is_some_and(|words| words.contains(&own.to_string())));
        // Rust's runtime takes SIGSEGV (11) for its message about stacks; nobody took SIGUSR1.
        assert!(catches_signal(own, 11) && !catches_signal(own, 10));
        assert!(!catches_signal(u32::MAX, 15));
    }
}
