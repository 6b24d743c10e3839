//! Failures as exceptions: `tonnage.TonnageError` with problem, hint, keys, place and kind.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tonnage_cli::question::{Failure, OfJob};
use tonnage_core::job::JobErrorKind;

/// The exception's class, which is written in Python.
static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception that says what `failure` says.
pub fn raised(py: Python<'_>, failure: Failure) -> PyErr {
    let of_job = failure.of_job.map(|of_job| *of_job);
    let kind = of_job.as_ref().map_or("input", |of_job| kind_name(of_job.kind));
    let place = of_job.as_ref().and_then(|of_job| of_job.place.as_ref());
    let place = place.map(|place| (place.file.clone(), place.line, place.column));
    let keys = of_job.map(|OfJob { keys, .. }| keys).unwrap_or_default();
    let class = match CLASS.import(py, "tonnage._errors", "TonnageError") {
        Ok(class) => class,
        Err(error) => return error,
    };
    match class.call1((failure.problem, failure.hint, keys, place, kind)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn kind_name(kind: JobErrorKind) -> &'static str {
    match kind {
        JobErrorKind::Unreadable => "unreadable",
        JobErrorKind::UnknownKey => "unknown_key",
        JobErrorKind::Value => "value",
        JobErrorKind::Model => "model",
        JobErrorKind::Unsimulated => "unsimulated",
        // The kinds may become more.
        _ => "refused",
    }
}
