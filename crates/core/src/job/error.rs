//! What is wrong with the user's input, where it stands, and the way out.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tonnage_tensor::failure::{Failure, WayOut};

/// What runs what is not simulated, as one types it.
pub const REHEARSE: &str =
    "`tonnage rehearse --gpu h100 -- python your_script.py` runs your own script without a GPU and says what it takes";

/// A hint with the GPU that was asked for where it shows a rehearsal.
pub fn rehearsed_on(hint: &str, gpu: &str) -> String {
    let quote = if gpu.contains(' ') { "'" } else { "" };
    ["h100", "GPU"].iter().fold(hint.to_owned(), |hint, shown| {
        hint.replace(&format!("rehearse --gpu {shown} --"), &format!("rehearse --gpu {quote}{gpu}{quote} --"))
    })
}

/// A place in a text the user wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file's name as the caller gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Place {
    /// The place of byte `offset` in `text`.
    pub fn of_offset(file: &str, text: &str, offset: usize) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            file: file.to_owned(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What kind of input cannot become a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobErrorKind {
    /// A text that is no TOML, no JSON, or of another shape than it must have.
    Unreadable,
    /// A key that no job has.
    UnknownKey,
    /// A value that its key does not take.
    Value,
    /// A model that is not found, not known, or whose config says what cannot be.
    Model,
    /// Values that PyTorch, a trainer or a machine refuses together.
    #[default]
    Refused,
    /// What may well run, and only the simulation does not have.
    Unsimulated,
    /// More than any GPU has.
    TooLarge,
}

/// The error that another one came of; equal to one that says the same.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for Cause {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// Input that cannot become a job. `Display` prints place and problem; `hint` is printed apart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{problem}", Prefix(.place))]
#[non_exhaustive]
pub struct JobError {
    /// What kind of input it is.
    pub kind: JobErrorKind,
    /// The keys that it is about, the one at fault first; empty where it is about a whole text or the model's config.
    /// Of these the first that the job file sets is where the error stands.
    pub keys: Vec<String>,
    /// What is wrong, as a lowercase fragment that names the key.
    pub problem: String,
    /// Where it stands, when it stands in a file.
    pub place: Option<Box<Place>>,
    /// What to do next.
    pub hint: Option<String>,
    /// The error beneath, where another parser or reader found it.
    pub source: Option<Cause>,
}

struct Prefix<'a>(&'a Option<Box<Place>>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) => write!(f, "{place}: "),
            None => Ok(()),
        }
    }
}

impl From<Failure> for JobError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.problem).about(&failure.keys);
        match failure.way_out {
            WayOut::OtherValue => error,
            WayOut::Lower(hint) => Self { kind: JobErrorKind::TooLarge, ..error }.hint(hint),
            WayOut::Rehearse => error.or_rehearse(),
        }
    }
}

impl JobError {
    /// A problem of what is refused, without keys, place or hint.
    pub fn new(problem: impl Into<String>) -> Self {
        Self::of_kind(JobErrorKind::default(), problem)
    }

    /// A problem of another kind.
    pub fn of_kind(kind: JobErrorKind, problem: impl Into<String>) -> Self {
        Self { kind, keys: Vec::new(), problem: problem.into(), place: None, hint: None, source: None }
    }

    /// The same about `keys`, the one at fault first.
    #[must_use]
    pub fn about<K: AsRef<str>>(mut self, keys: &[K]) -> Self {
        self.keys = keys.iter().map(|key| key.as_ref().to_owned()).collect();
        self
    }

    /// The same, which came of `cause`.
    #[must_use]
    pub fn caused_by(mut self, cause: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Cause(Arc::new(cause)));
        self
    }

    /// The same with `place` of another text before its problem.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.problem = format!("{place}: {}", self.problem);
        self
    }

    /// The key at fault.
    pub fn key(&self) -> Option<&str> {
        self.keys.first().map(String::as_str)
    }

    /// The same with what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same of something that is not simulated, which a rehearsal runs.
    #[must_use]
    pub fn or_rehearse(self) -> Self {
        let hint = match &self.hint {
            Some(hint) => format!("{hint}; or {REHEARSE}"),
            None => REHEARSE.to_owned(),
        };
        Self { kind: JobErrorKind::Unsimulated, ..self.hint(hint) }
    }

    /// The same of a job on `gpu`.
    #[must_use]
    pub fn on_gpu(mut self, gpu: Option<&str>) -> Self {
        if let (Some(hint), Some(gpu)) = (&self.hint, gpu) {
            self.hint = Some(rehearsed_on(hint, gpu));
        }
        self
    }

    /// The same with its place, unless it already has one.
    #[must_use]
    pub fn at_place(mut self, place: Option<Place>) -> Self {
        self.place = self.place.or_else(|| place.map(Box::new));
        self
    }
}

impl From<super::FieldError> for JobError {
    fn from(error: super::FieldError) -> Self {
        let of_config = Self::of_kind(JobErrorKind::Model, error.to_string()).caused_by(error.clone());
        if error.is_unsimulated { of_config.or_rehearse() } else { of_config }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters() {
        let text = "a = 1\nü = 2\n";
        let cases = [(0, 1, 1), (4, 1, 5), (6, 2, 1), (7, 2, 1), (8, 2, 2), (99, 3, 1)];
        for (offset, line, column) in cases {
            let place = Place::of_offset("job.toml", text, offset);
            assert_eq!((place.line, place.column), (line, column), "offset {offset}");
        }
    }

    #[test]
    fn prints_the_place_before_the_problem() {
        let error =
            JobError::new("`seq_len` must be at least 1").at_place(Some(Place::of_offset("job.toml", "x\ny", 2)));
        assert_eq!(error.to_string(), "job.toml:2:1: `seq_len` must be at least 1");
    }
}
