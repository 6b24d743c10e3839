//! [`Failure`]: why a command could not do its work, in one voice: a lowercase fragment, and a hint at the way out.

use clap::error::ErrorKind;
use tonnage_core::estimate::EstimateError;
use tonnage_core::job::{JobError, JobErrorKind, Place, rehearsed_on};
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
    /// What it is about, where it is about a job.
    pub of_job: Option<Box<OfJob>>,
}

/// What an error about a job is about.
#[derive(Debug)]
pub struct OfJob {
    /// What kind of input it is.
    pub kind: JobErrorKind,
    /// The keys, the one at fault first.
    pub keys: Vec<String>,
    /// Where it stands in a file.
    pub place: Option<Place>,
}

impl Failure {
    /// Input that cannot be used.
    pub fn bad_input(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: None, exit: Exit::Usage, of_job: None }
    }

    /// The same with what to do next.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same of a job on `gpu`.
    pub fn on_gpu(mut self, gpu: Option<&str>) -> Self {
        if let (Some(hint), Some(gpu)) = (&self.hint, gpu) {
            self.hint = Some(rehearsed_on(hint, gpu));
        }
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
    pub fn about_file(path: &str, error: &std::io::Error) -> Self {
        Self::bad_input(format!("{path}: {}", io_reason(error)))
    }
}

/// An I/O error in lowercase and without its number.
fn io_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        let problem = error.to_string();
        let of_job = OfJob { kind: error.kind, keys: error.keys, place: error.place.map(|place| *place) };
        Self { problem, hint: error.hint, exit: Exit::Usage, of_job: Some(Box::new(of_job)) }
    }
}

impl From<EstimateError> for Failure {
    fn from(error: EstimateError) -> Self {
        let hint = error.hint().map(str::to_owned);
        Self { hint, ..Self::bad_input(error.to_string()) }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::bad_input(error.to_string())
    }
}
