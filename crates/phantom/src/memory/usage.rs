//! The most that this process has held of each device, in a file for whoever started it: programs that no recorder watches
//! (Python without its path, native ones) leave nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process;

/// The folder, and what was reached so far by the number of the device on the machine.
pub struct Usage {
    folder: PathBuf,
    peaks: BTreeMap<usize, u64>,
}

impl Usage {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, peaks: BTreeMap::new() }
    }

    /// Writes `used-PID`, a line a device, where it has grown. Nobody is told where it cannot be written: the program goes on.
    pub fn note(&mut self, device: usize, bytes: u64) {
        let peak = self.peaks.entry(device).or_insert(0);
        if bytes <= *peak {
            return;
        }
        *peak = bytes;
        let mut text = String::new();
        for (device, peak) in &self.peaks {
            let _ = writeln!(text, "{device} {peak}");
        }
        let _ = fs::write(self.folder.join(format!("used-{}", process::id())), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_kept() {
        let folder = std::env::temp_dir().join(format!("tonnage-usage-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut usage = Usage::new(folder.clone());
        for (device, bytes) in [(0, 5), (1, 7), (0, 9), (0, 3)] {
            usage.note(device, bytes);
        }
        let text = fs::read_to_string(folder.join(format!("used-{}", process::id()))).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(text, "0 9\n1 7\n");
    }
}
