//! A job as Python hands it over.

use std::path::PathBuf;

use pyo3::prelude::*;
use tonnage_cli::question::{Asked, Handed};

/// `(model, settings, configs, objects, notes, environment)`.
#[derive(FromPyObject)]
pub struct PyAsked(
    Option<String>,
    Vec<(String, String)>,
    Vec<(String, String)>,
    Vec<(String, String)>,
    Vec<String>,
    Option<PathBuf>,
);

impl From<PyAsked> for Asked {
    fn from(PyAsked(model, settings, configs, objects, notes, environment): PyAsked) -> Self {
        Self { model, settings, handed: Handed { configs, objects, notes, environment } }
    }
}
