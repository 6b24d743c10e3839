//! [`Answer`]: a job and its estimate, which every format shows.

use tonnage_core::estimate::{Deployment, Estimate, Fit, Timeline, Verdict, shown_bound};
use tonnage_core::job::Resolved;
use tonnage_core::job::guides::LegacyEstimate;
use tonnage_core::plan::fits_from::Carriers;

/// What is shown.
pub struct Answer {
    /// The job, with where its values came from.
    pub resolved: Resolved,
    /// What its process needs; of several, the one that needs most.
    pub estimate: Estimate,
    /// The GPUs of the catalog that carry it, the smallest first, where it names none: then no verdict is about its GPU.
    pub carriers: Option<Carriers>,
    /// All its processes and their GPUs.
    pub deployment: Deployment,
    /// How the bytes rise and fall, if asked for.
    pub timeline: Option<Timeline>,
    /// What the small-GPT guide's formula says, if asked for.
    pub legacy: Option<LegacyEstimate>,
}

/// A job with some keys changed.
pub struct Variant {
    /// The keys and their values.
    pub changes: Vec<(String, String)>,
    /// Its answer, or why there is no such job.
    pub answer: Result<Answer, String>,
}

/// The verdict as a word.
pub(crate) fn verdict_name(estimate: &Estimate) -> &'static str {
    match &estimate.verdict {
        Verdict::Fits => "fits",
        Verdict::Tight { .. } if shown_bound(estimate.safe_bytes).is_none() => "not_known",
        Verdict::Tight { .. } => "tight",
        Verdict::DoesNotFit(_) => "does_not_fit",
    }
}

/// The verdict on a GPU as a word.
pub const fn fit_name(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "fits",
        Fit::Tight => "tight",
        Fit::NotKnown => "not_known",
        Fit::DoesNotFit => "does_not_fit",
    }
}

/// The verdict on a GPU for people.
pub const fn fit_words(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "fits",
        Fit::Tight => "tight",
        Fit::NotKnown => "not known",
        Fit::DoesNotFit => "does not fit",
    }
}

/// `124.4M`, `7.62B`: counts as people write them, with four figures at most.
pub(crate) fn grouped_count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.2}B", n as f64 / 1e9),
    }
}
