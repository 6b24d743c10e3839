//! Several processes on one phantom device: a small file in which each has a row with its use of every device. A lock on
//! the file orders them; rows of processes that are gone, however they ended, no longer count.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::config::MAX_DEVICES;
use crate::sys;

/// Opens the file's first eight bytes, so that another file is not overwritten.
const MAGIC: u64 = u64::from_le_bytes(*b"tonnage1");
/// Rows: processes that can be alive at once. More is refused as out of memory.
const ROWS: usize = 1024;
/// A row: process, start time, and bytes on every device.
const WORDS: usize = 2 + MAX_DEVICES;

/// An open ledger.
pub struct Ledger {
    file: File,
    /// Whom the row speaks for: this process, except in tests.
    stands_for: Option<u32>,
}

/// A process that may have ended and its number been given to another: the start time tells them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Process {
    id: u64,
    start: u64,
}

impl Process {
    fn with_id(id: u32) -> Self {
        Self { id: u64::from(id), start: start_time(id).unwrap_or(0) }
    }

    fn lives(self) -> bool {
        u32::try_from(self.id).ok().and_then(start_time) == Some(self.start)
    }
}

/// When a process started, in clock ticks since boot: field 22 of `/proc/PID/stat` (proc_pid_stat(5)); the name in
/// field 2 may contain anything, so counting begins after its closing parenthesis. A zombie has ended.
fn start_time(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

impl Ledger {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut ledger = Self { file, stands_for: None };
        ledger.locked(|file| {
            let length = file.metadata()?.len();
            if length == 0 {
                file.write_all_at(&MAGIC.to_le_bytes(), 0)?;
                return file.set_len(offset_of(ROWS));
            }
            let mut magic = [0; 8];
            file.read_exact_at(&mut magic, 0)?;
            if u64::from_le_bytes(magic) == MAGIC && length == offset_of(ROWS) {
                Ok(())
            } else {
                Err(io::Error::other("it is not a ledger of this version"))
            }
        })?;
        Ok(ledger)
    }

    #[cfg(test)]
    pub fn stand_for(&mut self, process: u32) {
        self.stands_for = Some(process);
    }

    /// Notes that this process now uses `used` bytes of a device; false, and nothing noted, where that and the others'
    /// use is more than `usable`, or the ledger fails.
    pub fn raise(&mut self, device: usize, used: u64, usable: u64) -> bool {
        let own = self.own();
        self.locked(|file| {
            let (row, others) = survey_rows(file, own, device)?;
            let fits = others.checked_add(used).is_some_and(|sum| sum <= usable);
            if fits {
                note_row(file, row.ok_or_else(|| io::Error::other("more processes than rows"))?, own, device, used)?;
            }
            Ok(fits)
        })
        .unwrap_or_else(|error| {
            eprintln!("tonnage phantom: the ledger fails: {error}");
            false
        })
    }

    /// Notes a smaller use.
    pub fn lower(&mut self, device: usize, used: u64) {
        self.raise(device, used, u64::MAX);
    }

    /// What other processes use of a device.
    pub fn others(&mut self, device: usize) -> u64 {
        let own = self.own();
        self.locked(|file| survey_rows(file, own, device)).map_or(0, |(_, others)| others)
    }

    /// Living processes that use a device, each with its bytes.
    pub fn users(&mut self, device: usize) -> Vec<(u32, u64)> {
        self.locked(|file| users(file, device)).unwrap_or_default()
    }

    /// Asked anew every time: a fork has a row of its own.
    fn own(&self) -> Process {
        Process::with_id(self.stands_for.unwrap_or_else(std::process::id))
    }

    fn locked<T>(&mut self, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        lock_file(&self.file, sys::LOCK_EX)?;
        let result = work(&self.file);
        lock_file(&self.file, sys::LOCK_UN)?;
        result
    }
}

fn lock_file(file: &File, operation: i32) -> io::Result<()> {
    loop {
        // SAFETY: a system call on a file descriptor that the reference keeps open.
        if unsafe { sys::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn offset_of(row: usize) -> u64 {
    8 + (row * WORDS * 8) as u64
}

/// Every row that was ever used: its process, and what that used of the device.
fn ledger_rows(file: &File, device: usize) -> io::Result<Vec<(Process, u64)>> {
    let mut bytes = vec![0; ROWS * WORDS * 8];
    file.read_exact_at(&mut bytes, offset_of(0))?;
    let word = |row: usize, column: usize| {
        let at = (row * WORDS + column) * 8;
        bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
    };
    let row = |row| (Process { id: word(row, 0), start: word(row, 1) }, word(row, 2 + device));
    // Rows fill from the front: behind the first that was never used, there are none.
    Ok((0..ROWS).map(row).take_while(|(process, _)| process.id != 0).collect())
}

fn users(file: &File, device: usize) -> io::Result<Vec<(u32, u64)>> {
    let living = ledger_rows(file, device)?.into_iter().filter(|(process, used)| *used > 0 && process.lives());
    Ok(living.filter_map(|(process, used)| Some((u32::try_from(process.id).ok()?, used))).collect())
}

/// The row for `own` (its present one, else a free one) and what living others use of the device.
fn survey_rows(file: &File, own: Process, device: usize) -> io::Result<(Option<usize>, u64)> {
    let rows = ledger_rows(file, device)?;
    let (mut mine, mut free, mut others) = (None, None, 0_u64);
    for (row, (process, used)) in rows.iter().enumerate() {
        if *process == own {
            mine = Some(row);
        } else if process.lives() {
            others = others.saturating_add(*used);
        } else {
            free = free.or(Some(row));
        }
    }
    let unused = (rows.len() < ROWS).then_some(rows.len());
    Ok((mine.or(free).or(unused), others))
}

fn note_row(file: &File, row: usize, own: Process, device: usize, used: u64) -> io::Result<()> {
    let mut words = [0; WORDS];
    let mut bytes = [0; WORDS * 8];
    file.read_exact_at(&mut bytes, offset_of(row))?;
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk.try_into().map_or(0, u64::from_le_bytes);
    }
    if (Process { id: words[0], start: words[1] }) != own {
        words = [0; WORDS];
        (words[0], words[1]) = (own.id, own.start);
    }
    words[2 + device] = used;
    for (word, chunk) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    file.write_all_at(&bytes, offset_of(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("tonnage-ledger-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_dead_do_not_count() {
        let path = path("dead");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut theirs = Ledger::open(&path).unwrap();
        theirs.stand_for(child.id());
        assert!(theirs.raise(3, 70, 100));
        assert_eq!(theirs.users(3), [(child.id(), 70)]);
        let mut ours = Ledger::open(&path).unwrap();
        assert_eq!(ours.others(3), 70);
        assert!(!ours.raise(3, 31, 100));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ours.others(3), 0);
        assert!(ours.raise(3, 100, 100));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn another_file_is_left_alone() {
        let path = path("other");
        fs::write(&path, "something of the user's").unwrap();
        assert!(Ledger::open(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "something of the user's");
        fs::remove_file(path).unwrap();
    }
}
