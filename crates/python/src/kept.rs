//! The answers of commands, kept as JSON and as a screen.

use std::path::PathBuf;

use pyo3::prelude::*;
use tonnage_cli::question::{self, Asked, AskedLogs};

use crate::asked::PyAsked;
use crate::errors::raised;

/// What a command answered: its screen, its document and its exit code.
#[pyclass(frozen, module = "tonnage._native")]
pub struct Kept(question::Kept);

#[pymethods]
impl Kept {
    /// What `--json` prints, as Python's objects.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // Python's reader: every float is the one that was written.
        py.import("json")?.call_method1("loads", (&self.0.document,))
    }

    /// The screen as text.
    fn screen(&self) -> &str {
        &self.0.screen
    }
}

/// The answer of a command, by its words, about a job.
#[pyfunction]
pub fn ask(py: Python<'_>, words: Vec<String>, asked: PyAsked) -> PyResult<Kept> {
    let asked = Asked::from(asked);
    py.detach(|| question::ask(&words, asked)).map(Kept).map_err(|failure| raised(py, failure))
}

/// What killed a job, by its logs: files, named texts, and the job's exit status; beside the job, where it is known.
#[pyfunction]
pub fn doctor(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    texts: Vec<(String, Vec<u8>)>,
    exit_status: Option<i64>,
    job: Option<PyAsked>,
) -> PyResult<Kept> {
    let asked = AskedLogs { paths, texts, exit_status, job: job.map(Asked::from) };
    py.detach(|| question::ask_doctor(asked)).map(Kept).map_err(|failure| raised(py, failure))
}
