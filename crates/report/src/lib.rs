//! How estimates look: JSON for programs, screens for terminals, SVG for documents.
//!
//! The only crate that knows output formats. It takes the values of `tonnage-core` and gives text; who prints it, and
//! whether colours survive, is the caller's business.

mod answer;
mod category;
mod fit;
mod look;
mod plan;
pub mod plot;
mod rehearsal;
pub mod svg;
pub mod text;
mod timeline_view;
mod view;

pub use answer::{Answer, Variant};
pub use fit::{FitAnswer, FitView, csv};
pub use look::Look;
pub use plan::PlanView;
pub use rehearsal::RehearsalView;
pub use view::{CompareView, EstimateView, VERSION};
