//! Readers, a file and a line in [`READERS`] each: bytes in, runs out. None opens a file, follows a name, or executes anything of
//! what it reads; all are bounded. The first reader that takes a file reads it.

mod csv;
mod flat;
mod gather;
mod json_lines;
mod lines;
mod records;
mod rl_swarm;
mod tensorboard;
mod tonnage_run;
mod trainer_state;
mod wandb;
mod words;

use std::io::BufRead;

use crate::run::Run;

pub use gather::{Gathered, Limits, NotRead, gather_runs};
pub(crate) use tensorboard::masked_crc;

/// Where a file stands.
pub struct Place<'a> {
    /// Its path below the folder that was named, with `/`.
    pub path: &'a str,
    /// The name of that folder.
    pub top: &'a str,
    /// The text of a file that lies beside it.
    pub beside: &'a dyn Fn(&str) -> Option<Vec<u8>>,
}

impl Place<'_> {
    /// The name of the file itself.
    pub fn file(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The folder it lies in, below the one named.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// A run that only its path names.
    pub fn run(&self) -> Run {
        let (configuration, seed) = crate::identity::of_path(self.path, self.top);
        let mut run =
            Run { place: self.path.to_owned(), files: vec![self.path.to_owned()], nodes: 1, ..Run::default() };
        (run.identity.configuration, run.identity.seed) = (configuration, seed);
        run.seed_is_known = seed.is_some();
        run
    }
}

/// What was read of a file.
#[derive(Default)]
pub struct Found {
    /// Runs, or parts of runs.
    pub runs: Vec<Run>,
    /// Lines or records that could not be read.
    pub passed_over: usize,
    /// The first of them: its number and what is wrong.
    pub first: Option<(usize, String)>,
}

impl Found {
    /// Notes a line that cannot be read.
    fn pass_over(&mut self, line: usize, why: impl Into<String>) {
        self.passed_over += 1;
        if self.first.is_none() {
            self.first = Some((line, why.into()));
        }
    }
}

/// A kind of file.
pub struct Reader {
    /// What it is called.
    pub name: &'static str,
    /// Files that it takes, for the documents.
    pub files: &'static str,
    /// Whether it takes a file of this name that begins so.
    pub takes: fn(&str, &[u8]) -> bool,
    pub read: fn(&mut dyn BufRead, &Place<'_>) -> Result<Found, String>,
}

/// All readers; the particular before the general.
pub const READERS: &[&Reader] = &[
    &tonnage_run::READER,
    &records::READER,
    &tensorboard::READER,
    &trainer_state::READER,
    &rl_swarm::READER,
    &wandb::LINES,
    &wandb::CSV,
    &json_lines::READER,
    &csv::READER,
];

/// The reader that takes a file called `name` that begins with `head`.
pub fn reader_of(name: &str, head: &[u8]) -> Option<&'static Reader> {
    READERS.iter().copied().find(|reader| (reader.takes)(name, head))
}
