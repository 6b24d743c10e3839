//! [`Failure`]: why a command could not do its work, in one voice: a lowercase fragment, and a hint at the way out.

use clap::error::ErrorKind;
use tonnage_core::estimate::EstimateError;
use tonnage_core::job::JobError;
use tonnage_run::RunError;

use crate::exit::Exit;

/// An error as the user sees it.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong; begins with the place where there is one.
    pub problem: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The exit code.
    pub exit: Exit,
}

impl Failure {
    /// Input that cannot be used.
    pub fn input(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: None, exit: Exit::Usage }
    }

    /// The same with what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same as an error in the words that were typed.
    pub fn into_clap(self) -> clap::Error {
        self.into_clap_of(ErrorKind::ValueValidation)
    }

    /// The same of a kind of its own.
    pub fn into_clap_of(self, kind: ErrorKind) -> clap::Error {
        let hint = self.hint.map_or_else(String::new, |hint| format!("\nhint: {hint}"));
        clap::Error::raw(kind, format!("{}{hint}\n", self.problem))
    }

    /// A file that cannot be read or written.
    pub fn file(path: &str, error: &std::io::Error) -> Self {
        Self::input(format!("{path}: {}", reason(error)))
    }
}

/// An I/O error in lowercase and without its number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self { problem: error.to_string(), hint: error.hint, exit: Exit::Usage }
    }
}

impl From<EstimateError> for Failure {
    fn from(error: EstimateError) -> Self {
        Self { problem: error.to_string(), hint: error.hint().map(str::to_owned), exit: Exit::Usage }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::input(error.to_string())
    }
}
