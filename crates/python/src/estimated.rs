//! Estimates: one, or many on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use tonnage_cli::question::{self, Asked, Failure};

use crate::asked::PyAsked;
use crate::errors::raised;
use crate::value::object;

/// The answer about one job.
#[pyclass(frozen, module = "tonnage._native")]
pub struct Estimated(question::Estimated);

#[pymethods]
impl Estimated {
    /// What `--json` prints, as Python's objects.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.0.value().map_err(|failure| raised(py, failure))?)
    }

    /// The screen as text.
    fn screen(&self) -> String {
        self.0.screen()
    }

    /// The step as a plot of text.
    fn plot(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.plot()).map_err(|failure| raised(py, failure))
    }

    /// The step as a picture.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.svg()).map_err(|failure| raised(py, failure))
    }
}

/// What a job needs, and whether it fits.
#[pyfunction]
pub fn estimate(py: Python<'_>, asked: PyAsked) -> PyResult<Estimated> {
    let asked = Asked::from(asked);
    py.detach(|| question::estimate(asked)).map(Estimated).map_err(|failure| raised(py, failure))
}

/// Each job's estimate, or the exception that says why there is none; in order, on all cores.
#[pyfunction]
pub fn estimates(py: Python<'_>, jobs: Vec<PyAsked>) -> PyResult<Vec<Py<PyAny>>> {
    let jobs: Vec<Asked> = jobs.into_iter().map(Asked::from).collect();
    let answers = py.detach(|| on_all_cores(&jobs));
    let object = |answer: Result<question::Estimated, Failure>| match answer {
        Ok(estimated) => Ok(Py::new(py, Estimated(estimated))?.into_any()),
        Err(failure) => Ok(raised(py, failure).into_value(py).into_any()),
    };
    answers.into_iter().map(object).collect()
}

fn on_all_cores(jobs: &[Asked]) -> Vec<Result<question::Estimated, Failure>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len().max(1));
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut answers = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return answers };
            answers.push((at, question::estimate(job.clone())));
        }
    };
    let mut answers: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|answers| answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
