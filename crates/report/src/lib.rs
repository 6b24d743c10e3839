//! The only crate that knows output formats: text, JSON and SVG views of an estimate.
