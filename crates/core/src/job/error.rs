//! What is wrong with the user's input, where it stands, and the way out.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What runs what is not simulated, as one types it.
pub(crate) const REHEARSE: &str =
    "`tonnage rehearse --gpu h100 -- python your_script.py` runs your own script without a GPU and says what it takes";

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
    pub fn at(file: &str, text: &str, offset: usize) -> Self {
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

/// Input that cannot become a job. `Display` prints place and problem; `hint` is printed apart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{problem}", Prefix(.place))]
pub struct JobError {
    /// What is wrong, as a lowercase fragment that names the key.
    pub problem: String,
    /// Where it stands, when it stands in a file.
    pub place: Option<Place>,
    /// What to do next.
    pub hint: Option<String>,
}

struct Prefix<'a>(&'a Option<Place>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) => write!(f, "{place}: "),
            None => Ok(()),
        }
    }
}

impl JobError {
    /// A problem without place or hint.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), place: None, hint: None }
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
        self.hint(hint)
    }

    /// The same with its place, unless it already has one.
    #[must_use]
    pub fn at(mut self, place: Option<Place>) -> Self {
        self.place = self.place.or(place);
        self
    }
}

impl From<super::FieldError> for JobError {
    fn from(error: super::FieldError) -> Self {
        let of_config = Self::new(error.to_string());
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
            let place = Place::at("job.toml", text, offset);
            assert_eq!((place.line, place.column), (line, column), "offset {offset}");
        }
    }

    #[test]
    fn prints_the_place_before_the_problem() {
        let error = JobError::new("`seq_len` must be at least 1").at(Some(Place::at("job.toml", "x\ny", 2)));
        assert_eq!(error.to_string(), "job.toml:2:1: `seq_len` must be at least 1");
    }
}
