//! What an experiment says, and what it does not: `tonnage report`.
//!
//! ```text
//! files -> source (a reader each) -> Run (identity, Series by metric, items, memory, end)
//!       -> Experiment (configurations x seeds, the question asked)
//!       -> check (what makes it say less) and compare (statistics, on every axis)
//!       -> section (blocks of a Document: text, flags, tables, figures)
//!       -> render (terminal, Markdown, CSV, JSON, one page); figure draws SVG and PNG
//! ```
//!
//! Every arrow is a function of values; only `source::gather` opens files. A renderer computes nothing, a section renders nothing.
//! The crate `report` renders Tonnage's answers about memory; this one reads the records of experiments and judges them.
//! One more reader, check or section is a file and a line in `READERS`, `CHECKS` or `SECTIONS`.

// No library for others: a field whose name says all is not said again. What is documented says a unit, a range or a source.
#![allow(missing_docs)]

pub mod axis;
pub mod check;
pub mod compare;
pub mod document;
pub mod event_file;
pub mod experiment;
pub mod figure;
pub mod identity;
pub mod metric;
mod parallel;
pub mod record;
pub mod render;
pub mod run;
pub mod section;
pub mod series;
pub mod source;
pub mod statistics;
pub mod swarm;
