//! An estimate beside a rehearsal: totals, categories, and the first difference of the two traces.

use std::collections::HashSet;

use crate::estimate::{Estimate, EstimateError, SimulatedJob};
use crate::recording::{Comparison, Names, RecordedEvent, Recording, compare_recordings};
use crate::trace::Category;
use crate::units::MIB;

use super::{AtPeak, Seen};

/// The two side by side.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Against {
    /// What was estimated.
    pub estimate: Estimate,
    /// Peaks of one device: allocated and reserved, rehearsed.
    pub rehearsed: (u64, u64),
    /// What is alive at the two peaks; empty where the recording does not say what its allocations hold, as a native program's.
    pub by_category: Vec<CategoryBytes>,
    /// Where the traces part, among the allocations of PyTorch's large pool; `None` without a recording that knows phases.
    pub comparison: Option<Comparison>,
}

/// What holds how much at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryBytes {
    /// The category; `None` for all that a script does not tell.
    pub category: Option<Category>,
    /// Bytes at the estimate's peak.
    pub estimated: u64,
    /// Bytes at the rehearsal's peak.
    pub rehearsed: u64,
}

/// Categories that a script tells: their tensors can be found from modules and optimizers.
const TOLD: [Category; 3] = [Category::Parameter, Category::Gradient, Category::OptimizerState];

/// Puts the estimate of `job` beside a device.
///
/// # Errors
/// When the job is too large to be estimated.
pub fn compare_estimate(job: &SimulatedJob<'_>, seen: &Seen) -> Result<Against, EstimateError> {
    let estimate = job.estimate()?;
    let peak = seen.recording.as_ref().map(AtPeak::of_recording).unwrap_or_default();
    let tells_categories = seen.recording.as_ref().is_none_or(|recorded| {
        recorded.events.iter().any(|event| matches!(event, RecordedEvent::Alloc(alloc) if !alloc.category.is_empty()))
    });
    let by_category = if tells_categories { category_bytes(&estimate, &peak) } else { Vec::new() };
    // Without phases nobody knows where the prediction's last step ends in it.
    let comparison = seen.recording.as_ref().filter(|recorded| recorded.has_phases()).map(|recorded| {
        let predicted = as_seen(Recording::from(job.trace()));
        let length = last_step(recorded).min(last_step(&predicted));
        let shown = |recording| large_only(until_step(recording, length));
        compare_recordings(&shown(predicted), &shown(as_seen(recorded.clone())), Names::Ignore)
    });
    let rehearsed = (seen.device.peak_allocated_bytes, seen.device.peak_reserved_bytes);
    Ok(Against { estimate, rehearsed, by_category, comparison })
}

fn category_bytes(estimate: &Estimate, peak: &AtPeak) -> Vec<CategoryBytes> {
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

/// What PyTorch's large pool serves (requests of more than 1 MiB: `kSmallSize`, c10/cuda/CUDACachingAllocator.cpp), without
/// the scalars that every loop has of its own.
fn large_only(mut recording: Recording) -> Recording {
    let mut kept = HashSet::new();
    recording.events.retain(|event| match event {
        RecordedEvent::Alloc(alloc) => alloc.bytes > MIB && kept.insert(alloc.id),
        RecordedEvent::Free(id) => kept.contains(id),
        RecordedEvent::Phase(_) | RecordedEvent::EmptyCache => true,
    });
    recording
}

/// The last step that a recording names.
fn last_step(recording: &Recording) -> u32 {
    recording.phases().map(|phase| phase.step).max().unwrap_or(0)
}

/// The recording up to the end of `step`.
fn until_step(mut recording: Recording, step: u32) -> Recording {
    let after = |event: &RecordedEvent| matches!(event, RecordedEvent::Phase(phase) if phase.step > step);
    if let Some(end) = recording.events.iter().position(after) {
        recording.events.truncate(end);
    }
    recording
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read_timeline;

    #[test]
    fn phases_that_a_script_does_not_tell_apart_are_one() {
        let text = "{}\n[\"p\",\"load\",0]\n[\"p\",\"input\",1]\n[\"p\",\"forward\",1]\n[\"p\",\"loss\",1]\n\
                    [\"p\",\"backward\",1]\n[\"p\",\"optimizer\",1]\n[\"p\",\"zero_grad\",1]\n[\"p\",\"input\",2]\n";
        let recording = as_seen(read_timeline(text).unwrap());
        let labels: Vec<_> = recording.phases().map(|phase| phase.label()).collect();
        assert_eq!(labels, ["0:load", "1:forward", "1:backward", "1:optimizer", "2:forward"]);
        assert_eq!(last_step(&recording), 2);
        assert_eq!(until_step(recording, 1).phases().count(), 4);
    }

    #[test]
    fn scalars_do_not_count() {
        let text = "{}\n[\"a\",0,4,\"mm\",\"\",\"temporary\"]\n[\"a\",1,2097152,\"mm\",\"\",\"temporary\"]\n[\"f\",0]\n[\"f\",1]\n";
        assert_eq!(large_only(read_timeline(text).unwrap()).events.len(), 2);
    }
}
