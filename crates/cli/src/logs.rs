//! Reads logs for the doctor: files, folders of them, stdin; a piece at a time, however long they are.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tonnage_core::failure::{Scan, Scanner, Source, place_of, printable};

use crate::failure::Failure;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Folders below one that is named, and files of all of them.
const DEEPEST: usize = 12;
const MOST_FILES: usize = 20_000;
/// How files that hold logs end; what has no ending, or a number as one, may be a log too.
const ENDINGS: &[&str] = &["log", "txt", "out", "err", "stdout", "stderr"];

/// What was read.
#[derive(Default)]
pub struct Logs {
    /// A log each.
    pub sources: Vec<Source>,
    /// Files of folders that do not look like logs.
    pub not_read: usize,
}

impl Logs {
    /// Reads what `path` names: a file, a folder, or `-` for stdin.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&mut self, path: &Path) -> Result<(), Failure> {
        if path == Path::new("-") {
            let scan = scan(io::stdin().lock()).map_err(|error| Failure::file("stdin", &error))?;
            self.sources.push(Source { name: "stdin".to_owned(), scan, ..Source::default() });
            return Ok(());
        }
        let name = path.display().to_string();
        if !path.is_dir() {
            return self.file(path);
        }
        let mut files = Vec::new();
        self.collect(path, 0, &mut files)?;
        if files.is_empty() {
            let failure = Failure::input(format!("{name}: no logs in this folder"));
            return Err(failure.hint(format!("logs end in .{}", ENDINGS.join(", ."))));
        }
        files.sort();
        files.iter().try_for_each(|file| self.file(file))
    }

    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure::file(&printable(&name), &error);
        let scan = scan(File::open(path).map_err(failed)?).map_err(failed)?;
        let (rank, attempt) = place_of(&name);
        self.sources.push(Source { name, rank, attempt, scan });
        Ok(())
    }

    /// The logs of a folder and those below it; links to folders are not followed.
    fn collect(&mut self, folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::file(&printable(&folder.display().to_string()), &error);
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let path = entry.path();
            if kind.is_dir() && depth < DEEPEST {
                self.collect(&path, depth + 1, files)?;
            } else if path.is_file() && looks_like_a_log(&path) && files.len() < MOST_FILES {
                files.push(path);
            } else if !kind.is_dir() {
                self.not_read += 1;
            }
        }
        Ok(())
    }
}

fn looks_like_a_log(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    // torchrun's record of an exception.
    if name == "error.json" {
        return true;
    }
    match name.rsplit_once('.') {
        Some((_, ending)) => ENDINGS.contains(&ending) || ending.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    }
}

fn scan(mut log: impl Read) -> io::Result<Scan> {
    let mut scanner = Scanner::new();
    let mut piece = vec![0; PIECE];
    loop {
        match log.read(&mut piece) {
            Ok(0) => return Ok(scanner.finish()),
            Ok(length) => scanner.feed(piece.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
