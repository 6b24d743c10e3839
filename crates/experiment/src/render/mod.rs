//! Renderers of a document: one file a format.

mod csv;
mod html;
mod json;
mod markdown;
mod text;

pub use csv::csv;
pub use html::html;
pub use json::json;
pub use markdown::markdown;
pub use text::text;
