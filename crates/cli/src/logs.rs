//! Reads logs for the doctor: files, folders of them, stdin; a piece at a time, however long they are.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_core::printable::printable;
use tonnage_doctor::{Scan, Scanner, Source, place_of};

use crate::failure::Failure;
use crate::log_text::LogText;

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
    /// One of them that is compressed.
    packed: Option<PathBuf>,
}

impl Logs {
    /// Reads what `path` names: a file, a folder, or `-` for stdin.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_path(&mut self, path: &Path) -> Result<(), Failure> {
        if path == Path::new("-") {
            let scan = scan_log("stdin", io::stdin().lock())?;
            self.sources.push(Source { name: "stdin".to_owned(), scan, ..Source::default() });
            return Ok(());
        }
        let name = path.display().to_string();
        if !path.is_dir() {
            return self.scan_file(path);
        }
        let mut files = Vec::new();
        self.collect_logs(path, 0, &mut files)?;
        if files.is_empty() {
            return Err(self.no_logs(&name));
        }
        files.small_sort();
        for file in &files {
            // What is no text is none of a folder's logs.
            if is_text(file)? {
                self.scan_file(file)?;
            } else {
                self.not_read += 1;
            }
        }
        Ok(())
    }

    /// Reads a text that lies in memory.
    ///
    /// # Errors
    /// When it is no text.
    pub fn scan_text(&mut self, name: &str, text: &[u8]) -> Result<(), Failure> {
        let (rank, attempt) = place_of(name);
        self.sources.push(Source { name: name.to_owned(), rank, attempt, scan: scan_log(&printable(name), text)? });
        Ok(())
    }

    /// Why a folder has none.
    fn no_logs(&self, name: &str) -> Failure {
        let failure = |why: &str| Failure::bad_input(format!("{}: {why}", printable(name)));
        match &self.packed {
            Some(path) => {
                let tool = packed_by(path).unwrap_or("zcat");
                let path = printable(&path.display().to_string());
                failure("the logs in this folder are compressed")
                    .with_hint(format!("`{tool} {path} | tonnage doctor -`"))
            }
            None => failure("no logs in this folder").with_hint(format!("logs end in .{}", ENDINGS.join(", ."))),
        }
    }

    fn scan_file(&mut self, path: &Path) -> Result<(), Failure> {
        let name = path.display().to_string();
        let shown = printable(&name);
        let scan = scan_log(&shown, File::open(path).map_err(|error| Failure::about_file(&shown, &error))?)?;
        let (rank, attempt) = place_of(&name);
        self.sources.push(Source { name, rank, attempt, scan });
        Ok(())
    }

    /// The logs of a folder and those below it; links to folders are not followed.
    fn collect_logs(&mut self, folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::about_file(&printable(&folder.display().to_string()), &error);
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let path = entry.path();
            if kind.is_dir() && depth < DEEPEST {
                self.collect_logs(&path, depth + 1, files)?;
            } else if path.is_file() && looks_like_a_log(&path) && files.len() < MOST_FILES {
                files.push(path);
            } else if !kind.is_dir() {
                self.packed = self.packed.take().or_else(|| is_packed(&path).then(|| path.clone()));
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
        // `slurm-1.out_0` and `train.log-2` are numbered.
        Some((_, ending)) => {
            let plain =
                ending.trim_end_matches(|character: char| character.is_ascii_digit()).trim_end_matches(['_', '-']);
            ENDINGS.contains(&plain) || plain.is_empty()
        }
        None => true,
    }
}

/// Endings of compressed files, with what unpacks them.
const PACKED: &[(&str, &str)] =
    &[("gz", "zcat"), ("zst", "zstdcat"), ("xz", "xzcat"), ("bz2", "bzcat"), ("zip", "unzip -p")];

fn packed_by(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_lowercase();
    PACKED.iter().find(|(packed, _)| *packed == ending).map(|(_, tool)| *tool)
}

fn is_packed(path: &Path) -> bool {
    packed_by(path).is_some()
}

/// Whether the file's first bytes are text.
fn is_text(path: &Path) -> Result<bool, Failure> {
    let name = printable(&path.display().to_string());
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PIECE as u64).read_to_end(&mut first));
    read.map_err(|error| Failure::about_file(&name, &error))?;
    Ok(LogText::of_log(&name, &first).is_ok())
}

fn scan_log(name: &str, mut log: impl Read) -> Result<Scan, Failure> {
    let mut scanner = Scanner::new();
    let mut piece = vec![0; PIECE];
    let mut text = None;
    loop {
        let length = match log.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::about_file(name, &error)),
        };
        let bytes = piece.get(..length).unwrap_or_default();
        let kind = match &mut text {
            Some(kind) => kind,
            unknown => unknown.insert(LogText::of_log(name, bytes)?),
        };
        let wide = match kind {
            LogText::Plain => None,
            LogText::Wide(wide) => Some(wide.decode_text(bytes)),
        };
        let bytes = wide.as_ref().map_or(bytes, String::as_bytes);
        scanner.feed(bytes);
    }
    Ok(scanner.finish())
}
