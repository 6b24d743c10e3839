//! How often the kernel's memory killer struck in this process's cgroup (version 2).

use std::fs;
use std::path::PathBuf;

/// The count so far; 0 where there is none to read.
pub(super) fn oom_kills() -> u64 {
    event_files().iter().find_map(|file| kill_count(&fs::read_to_string(file).ok()?)).unwrap_or(0)
}

fn event_files() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = PathBuf::from("/sys/fs/cgroup");
    // In a cgroup namespace the own group is the root's.
    vec![root.join(path).join("memory.events"), root.join("memory.events")]
}

fn kill_count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_table() {
        assert_eq!(kill_count("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"), Some(2));
        assert_eq!(kill_count("oom 1"), None);
    }
}
