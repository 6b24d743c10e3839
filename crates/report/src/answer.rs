//! [`Answer`]: a job and its estimate, which every format shows.

use tonnage_core::estimate::{Estimate, Timeline, Verdict};
use tonnage_core::spec::Resolved;

/// What is shown.
pub struct Answer {
    /// The job, with where its values came from.
    pub resolved: Resolved,
    /// What it needs.
    pub estimate: Estimate,
    /// How the bytes rise and fall, if asked for.
    pub timeline: Option<Timeline>,
}

/// The verdict as a word.
pub(crate) fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::Tight { .. } => "tight",
        Verdict::DoesNotFit(_) => "does_not_fit",
    }
}

/// `124.4M`, `7.62B`: counts as people write them, with four figures at most.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.2}B", n as f64 / 1e9),
    }
}
