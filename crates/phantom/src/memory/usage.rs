//! What this process has taken of each device at most, and what it was refused, in a file for whoever started it: programs that
//! no recorder watches (native ones, Python without its path) leave nothing else. `tonnage_core::rehearsal` reads it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process;

/// The folder, and what was reached so far by the number of the device on the machine.
pub struct Usage {
    folder: PathBuf,
    devices: BTreeMap<usize, Taken>,
}

/// Of one device; bytes, contexts included.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// The most that this process held.
    peak: u64,
    /// The most that all processes held together when this one took more.
    together: u64,
    /// How many they were then.
    processes: usize,
    /// Requests for which there was no room.
    refusals: u64,
    /// The last of them, until as much is given at once.
    refused: u64,
    /// What this process held at that moment.
    held: u64,
}

impl Usage {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, devices: BTreeMap::new() }
    }

    /// The process was given `bytes` more and holds `used`, all `processes` together `together`.
    pub fn note_given(&mut self, device: usize, bytes: u64, used: u64, (processes, together): (usize, u64)) {
        let taken = self.devices.entry(device).or_default();
        let is_answered = taken.refused > 0 && bytes >= taken.refused;
        if is_answered {
            (taken.refused, taken.held) = (0, 0);
        }
        let has_grown = used > taken.peak || together > taken.together;
        taken.peak = taken.peak.max(used);
        if together > taken.together {
            (taken.together, taken.processes) = (together, processes);
        }
        if is_answered || has_grown {
            self.write();
        }
    }

    /// There was no room for `bytes` more beside the `held` of this process.
    pub fn note_refused(&mut self, device: usize, bytes: u64, held: u64) {
        let taken = self.devices.entry(device).or_default();
        taken.refusals += 1;
        (taken.refused, taken.held) = (bytes, held);
        self.write();
    }

    /// Writes `used-PID`, a line a device. Nobody is told where it cannot be written: the program goes on. It is moved to its place
    /// whole, because the process may be killed meanwhile.
    fn write(&self) {
        let mut text = String::new();
        for (device, Taken { peak, together, processes, refusals, refused, held }) in &self.devices {
            let _ = writeln!(text, "{device} {peak} {together} {processes} {refusals} {refused} {held}");
        }
        let path = self.folder.join(format!("used-{}", process::id()));
        let part = path.with_extension("part");
        if fs::write(&part, text).is_ok() {
            let _ = fs::rename(part, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, work: impl FnOnce(&mut Usage)) -> String {
        let folder = std::env::temp_dir().join(format!("tonnage-usage-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        work(&mut Usage::new(folder.clone()));
        let text = fs::read_to_string(folder.join(format!("used-{}", process::id()))).unwrap();
        fs::remove_dir_all(folder).unwrap();
        text
    }

    #[test]
    fn the_most_is_kept() {
        let text = written("most", |usage| {
            for (device, used) in [(0, 5), (1, 7), (0, 9), (0, 3)] {
                usage.note_given(device, 1, used, (1, used));
            }
        });
        assert_eq!(text, "0 9 9 1 0 0 0\n1 7 7 1 0 0 0\n");
    }

    #[test]
    fn all_processes_together_may_hold_more_while_this_one_holds_less() {
        let text = written("together", |usage| {
            usage.note_given(0, 9, 9, (1, 9));
            usage.note_given(0, 4, 4, (2, 20));
        });
        assert_eq!(text, "0 9 20 2 0 0 0\n");
    }

    #[test]
    fn a_refusal_stands_until_as_much_is_given() {
        let refused = |usage: &mut Usage| {
            usage.note_given(0, 6, 6, (1, 6));
            usage.note_refused(0, 5, 6);
            usage.note_given(0, 4, 4, (1, 4));
        };
        assert_eq!(written("refused", refused), "0 6 6 1 1 5 6\n");
        let answered = |usage: &mut Usage| {
            refused(usage);
            usage.note_given(0, 5, 5, (1, 5));
        };
        assert_eq!(written("answered", answered), "0 6 6 1 1 0 0\n");
    }
}
