//! The verdict: what the fullest GPU needs of what it has, and what that consists of.

use std::fmt::Write;

use tonnage_core::estimate::{Estimate, Fit, GpuLoad, Verdict, shown_bound};
use tonnage_core::job::JobSpec;
use tonnage_core::units::Bytes;

use super::fits_from;
use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use crate::answer::Answer;
use crate::look::Look;

/// The lines of the verdict.
pub(super) fn verdict_lines(answer: &Answer, look: &Look) -> String {
    let (job, estimate) = (&answer.resolved.job, &answer.estimate);
    let Some(gpu) = answer.deployment.fullest() else { return String::new() };
    let mut text = match &answer.carriers {
        Some(_) => fits_from::fits_headline(answer, look),
        None => gpu_headline(gpu, look),
    };
    let sum = sum_words(estimate);
    // The headline is the fullest GPU's, which may be another one than that of the process shown here.
    let is_another = gpu.processes.first().is_some_and(|(process, _)| *process > 0);
    let whose = if is_another { "GPU 0: " } else { "" };
    let sum = if gpu.is_shared() { format!("each process: {sum}") } else { format!("{whose}{sum}") };
    let _ = writeln!(text, "  {}", paint_text(DIM, &wrap_text(&sum, look.width, 2)));
    if estimate.range.0 != estimate.range.1 {
        let (low, high) = (Bytes(estimate.range.0), Bytes(estimate.range.1));
        let range = match shown_bound(estimate.safe_bytes) {
            Some(_) => format!("{whose}between {low} and {high}: see below"),
            None => format!("{whose}from {low}, and no upper bound is known: see below"),
        };
        let _ = writeln!(text, "  {}", paint_text(DIM, &wrap_text(&range, look.width, 2)));
    }
    match &answer.carriers {
        Some(carriers) => text.push_str(&fits_from::carrier_lines(answer, carriers, look)),
        None => {
            let trouble = trouble_line(job, estimate).map(|line| format!("  {}\n", wrap_text(&line, look.width, 2)));
            text.push_str(&trouble.unwrap_or_default());
        }
    }
    for caveat in estimate.caveats.iter().filter(|caveat| caveat.leads) {
        let _ = writeln!(text, "{} {}", paint_text(WARN, "!"), wrap_text(&caveat.text, look.width, 2));
    }
    text.push('\n');
    text
}

/// What the total consists of; an engine beside the trainer need not be awake when the trainer holds the most.
fn sum_words(estimate: &Estimate) -> String {
    let context = Bytes(estimate.outside.high);
    match estimate.engine_bytes() {
        Some(engine) => format!(
            "{} reserved by PyTorch + {} vLLM engine + {context} CUDA context",
            Bytes(estimate.reserved_at_total()),
            Bytes(engine)
        ),
        None => format!(
            "{} reserved by PyTorch ({} allocated) + {context} CUDA context",
            Bytes(estimate.peak_reserved_bytes),
            Bytes(estimate.peak_allocated_bytes)
        ),
    }
}

/// The verdict on `gpu`, and a bar.
fn gpu_headline(gpu: &GpuLoad, look: &Look) -> String {
    let style = fit_style(gpu.fit);
    let (sign, word) = match gpu.fit {
        Fit::Fits => (look.pick("✔ ", ""), "fits"),
        Fit::Tight => (look.pick("▲ ", ""), "tight"),
        Fit::NotKnown => (look.pick("▲ ", ""), "not known"),
        Fit::DoesNotFit => (look.pick("✘ ", ""), "does not fit"),
    };
    let headroom = Bytes(gpu.usable_bytes.abs_diff(gpu.total_bytes));
    let room = if gpu.total_bytes > gpu.usable_bytes { "over" } else { "to spare" };
    let (total, usable) = (Bytes(gpu.total_bytes), Bytes(gpu.usable_bytes));
    let line = format!(
        "{}   {} of {usable} usable, {headroom} {room}",
        paint_text(style, &format!("{sign}{word}")),
        paint_text(BOLD, &total.to_string())
    );
    let mut text = format!("{}\n", wrap_text(&line, look.width, 2));
    let width = look.width.saturating_sub(10).min(66);
    let share = gpu.total_bytes as f64 / gpu.usable_bytes.max(1) as f64;
    let bar = look.bar(share, width);
    let rest = look.pick("░", ".").repeat(width.saturating_sub(bar.chars().count()));
    let _ = writeln!(text, "  {}{} {:.0} %", paint_text(style, &bar), paint_text(DIM, &rest), share * 100.0);
    text
}

/// Where it runs out of memory, or what makes it tight.
fn trouble_line(job: &JobSpec, estimate: &Estimate) -> Option<String> {
    match &estimate.verdict {
        Verdict::Fits => None,
        Verdict::Tight { .. } if shown_bound(estimate.safe_bytes).is_none() => {
            Some("whether it fits is not known: what is left out or unchecked, below, has no bound".to_owned())
        }
        Verdict::Tight { retries: None | Some(0) } => Some(format!(
            "less room than the margin and what is not known: {} are surely enough",
            Bytes(estimate.safe_bytes)
        )),
        Verdict::Tight { retries: Some(1) } => {
            Some("runs only because the allocator flushes its cache and tries again once, which is slow".to_owned())
        }
        Verdict::Tight { retries: Some(retries) } => Some(format!(
            "runs only because the allocator flushes its cache and tries again {retries} times, which is slow"
        )),
        Verdict::DoesNotFit(None) => None,
        Verdict::DoesNotFit(Some(moment)) => {
            let phase = moment.phase.map_or_else(String::new, |phase| phase.label());
            let place = if moment.module.is_empty() { String::new() } else { format!(" in {}", moment.module) };
            Some(format!(
                "out of memory in {phase}: {}{place} asks for {} on {}",
                moment.node.unwrap_or(moment.op),
                Bytes(moment.requested),
                job.gpu.name
            ))
        }
    }
}
