//! An estimate beside a rehearsal: totals, categories, and the first difference of the two traces.

use crate::estimate::{Estimate, EstimateError, SimulatedJob};
use crate::recording::{Comparison, Names, RecordedEvent, Recording, compare_recordings};
use crate::trace::Category;

use super::{AtPeak, Seen};

/// The two side by side.
#[derive(Clone, Debug)]
pub struct Against {
    /// What was estimated.
    pub estimate: Estimate,
    /// Peaks of one device: allocated and reserved, rehearsed.
    pub rehearsed: (u64, u64),
    /// What is alive at the two peaks.
    pub by_category: Vec<CategoryBytes>,
    /// Where the traces part; `None` without a recording.
    pub comparison: Option<Comparison>,
}

/// What holds how much at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryBytes {
    /// The category; `None` for all that a script does not tell.
    pub category: Option<Category>,
    /// Estimated bytes.
    pub estimated: u64,
    /// Rehearsed bytes.
    pub rehearsed: u64,
}

/// Categories that a script tells: their tensors can be found from modules and optimizers.
const TOLD: [Category; 3] = [Category::Parameter, Category::Gradient, Category::OptimizerState];

/// Puts the estimate of `job` beside a device.
///
/// # Errors
/// When the job is too large to be estimated.
pub fn against(job: &SimulatedJob<'_>, seen: &Seen) -> Result<Against, EstimateError> {
    let estimate = job.estimate()?;
    let peak = seen.recording.as_ref().map(AtPeak::of).unwrap_or_default();
    let by_category = categories(&estimate, &peak);
    let comparison = seen.recording.as_ref().map(|recorded| {
        let predicted = as_seen(Recording::from(job.trace()));
        let length = steps(recorded).min(steps(&predicted));
        compare_recordings(&until(predicted, length), &until(as_seen(recorded.clone()), length), Names::Ignore)
    });
    let rehearsed = (seen.device.peak_allocated_bytes, seen.device.peak_reserved_bytes);
    Ok(Against { estimate, rehearsed, by_category, comparison })
}

fn categories(estimate: &Estimate, peak: &AtPeak) -> Vec<CategoryBytes> {
    let estimated = |category: Category| estimate.at_peak.by_category[category as usize];
    let rehearsed = |category: Category| {
        let named = peak.by_category.iter().find(|(name, _)| name == category.name());
        named.map_or(0, |(_, bytes)| *bytes)
    };
    let row = |category| CategoryBytes {
        category: Some(category),
        estimated: estimated(category),
        rehearsed: rehearsed(category),
    };
    let mut rows = TOLD.map(row).to_vec();
    let told = rows.iter().fold((0, 0), |sum, row| (sum.0 + row.estimated, sum.1 + row.rehearsed));
    let all: u64 = estimate.at_peak.by_category.iter().sum();
    rows.push(CategoryBytes {
        category: None,
        estimated: all.saturating_sub(told.0),
        rehearsed: peak.bytes.saturating_sub(told.1),
    });
    rows
}

/// The phase as a script shows it: an unchanged script tells neither the loss from the forward pass nor inputs from
/// what lies between steps.
fn as_seen(mut recording: Recording) -> Recording {
    let mut last = None;
    for event in &mut recording.events {
        let RecordedEvent::Phase(phase) = event else { continue };
        phase.name = match phase.name.as_str() {
            "input" | "loss" | "forward_tail" | "forward" => "forward",
            "clip" | "optimizer" | "zero_grad" | "between" | "end" => "optimizer",
            other => other,
        }
        .to_owned();
    }
    recording.events.retain(|event| {
        let RecordedEvent::Phase(phase) = event else { return true };
        last.replace(phase.clone()).as_ref() != Some(phase)
    });
    recording
}

/// The last step that a recording names.
fn steps(recording: &Recording) -> u32 {
    recording.phases().map(|phase| phase.step).max().unwrap_or(0)
}

/// The recording up to the end of `step`.
fn until(mut recording: Recording, step: u32) -> Recording {
    let after = |event: &RecordedEvent| matches!(event, RecordedEvent::Phase(phase) if phase.step > step);
    if let Some(end) = recording.events.iter().position(after) {
        recording.events.truncate(end);
    }
    recording
}
