//! How estimates look: JSON for programs, screens for terminals, SVG for documents.
//!
//! The only crate that knows output formats. It takes the values of `tonnage-core` and gives text; who prints it, and
//! whether colours survive, is the caller's business.

// No library for others: a field whose name says all is not said again. What is documented says a unit, a range or a source.
#![allow(missing_docs)]

mod answer;
mod bill;
mod category;
mod doctor;
mod fit;
mod look;
mod plan;
pub mod plot;
mod rehearsal;
mod run;
mod solve;
mod suite;
pub mod svg;
pub mod text;
mod timeline_view;
mod view;
pub mod words;

pub use answer::{Answer, Variant, fit_name, fit_words};
pub use doctor::{DoctorAnswer, DoctorView, JobAnswer};
pub use fit::{FitAnswer, FitView, fit_csv};
pub use look::Look;
pub use plan::{PlanView, SearchView};
pub use rehearsal::RehearsalView;
pub use run::{RunLine, run_json};
pub use solve::{SolveAnswer, SolveRow, SolveView, solve_csv};
pub use suite::{CostView, SuiteAnswer, suite_csv};
pub use view::{CompareView, EstimateView, VERSION};
