//! The default answer: the job, the verdict, the phases, what is alive at the peak, what is not known, what next.

use std::fmt::Write;
use tonnage_core::job::keys;
use tonnage_core::small_sort::SmallSort;

use tonnage_core::estimate::{Estimate, Verdict, shown_bound};
use tonnage_core::job::{CheckpointPolicy, Framework, JobSpec, Origin, Precision, Resolved};
use tonnage_core::printable::printable;
use tonnage_core::trace::{Category, PhaseKind};
use tonnage_core::units::Bytes;

use super::deployment::{model_lines, process_table};
use super::host::host_table;
use super::paint::{BOLD, DIM, WARN, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use super::verdict::verdict_lines;
use crate::answer::{Answer, grouped_count};
use crate::category;
use crate::look::Look;

/// Columns of the longest bar in a table.
const BAR: usize = 24;
/// Columns of a row of phases beside its bar.
const BESIDE_BAR: usize = 60;
/// Categories below this share of the peak share a row.
const SMALL: f64 = 0.005;

/// The screen for `answer`.
pub fn estimate_screen(answer: &Answer, look: &Look) -> String {
    let estimate = &answer.estimate;
    let mut text = String::new();
    text.push_str(&job_head(&answer.resolved, estimate, look));
    text.push_str(&verdict_lines(answer, look));
    text.push_str(&process_table(&answer.deployment, answer.carriers.is_none(), look));
    text.push_str(&phase_table(estimate, look));
    text.push_str(&at_peak(estimate, look));
    text.push_str(&host_table(estimate, answer.resolved.job.parallel.world_size, look));
    text.push_str(&model_lines(estimate, look));
    text.push_str(&caveat_lines(estimate, look));
    text
}

/// What was asked, in two lines; an assumption says so.
fn job_head(resolved: &Resolved, estimate: &Estimate, look: &Look) -> String {
    let job = &resolved.job;
    let dot = look.pick(" · ", " | ");
    let mut size = format!("{} parameters", grouped_count(estimate.parameter_count));
    if estimate.trainable_count < estimate.parameter_count && job.task.trains() {
        let _ = write!(size, ", {} trained", grouped_count(estimate.trainable_count));
    }
    let assumed = |key: &str| matches!(resolved.origin(key), Some(Origin::Default(_)));
    let mark = |text: String, key: &str| if assumed(key) { format!("{text}*") } else { text };
    let times = look.pick("×", "x");
    let rows = mark(format!("micro-batch {}", job.micro_batch_size), keys::MICRO_BATCH_SIZE);
    let shape = format!("{rows} {times} {} tokens", mark(job.seq_len.to_string(), keys::SEQ_LEN));
    let mut settings = vec![shape, mark(value_word(resolved, keys::PRECISION), keys::PRECISION)];
    if job.task.trains() {
        settings.push(mark(value_word(resolved, keys::OPTIMIZER), keys::OPTIMIZER));
    } else {
        settings.push(value_word(resolved, keys::TASK));
    }
    settings.push(mark(value_word(resolved, keys::ATTENTION), keys::ATTENTION));
    settings.extend(job_extras(job));
    if job.model.is_in_transformers() {
        settings.push(mark(format!("transformers {}", job.transformers), keys::TRANSFORMERS));
    }
    if resolved.names_gpu() {
        settings.push(job.gpu.name.clone());
    }
    let head = wrap_text(&format!("{}{dot}{size}", paint_text(BOLD, &job.model.name)), look.width, 2);
    let settings = wrap_items(&settings, dot, look.width);
    let assumptions =
        [keys::MICRO_BATCH_SIZE, keys::SEQ_LEN, keys::PRECISION, keys::OPTIMIZER, keys::ATTENTION, keys::TRANSFORMERS];
    let note = if assumptions.iter().any(|key| assumed(key)) {
        let others = other_settings(resolved);
        let program = format!("* nobody said: taken as with {}{others}", job.framework.title());
        paint_text(DIM, &wrap_text(&program, look.width, 2)) + "\n"
    } else {
        String::new()
    };
    format!("{head}\n{settings}\n{note}\n")
}

/// The flag that says another framework, where nobody named one.
fn other_settings(resolved: &Resolved) -> String {
    if !matches!(resolved.origin(keys::FRAMEWORK), Some(Origin::Default(_))) {
        return String::new();
    }
    match resolved.job.framework {
        Framework::Trainer => " (or --framework loop, trl)".to_owned(),
        _ => String::new(),
    }
}

/// Items in lines of at most `width` columns, broken between items only.
fn wrap_items(items: &[String], dot: &str, width: usize) -> String {
    let whole: Vec<_> = items.iter().map(|item| item.replace(' ', "\u{a0}")).collect();
    let joined = whole.join(&format!("\u{a0}{} ", dot.trim()));
    wrap_text(&joined, width, 0).replace('\u{a0}', " ")
}

fn job_extras(job: &JobSpec) -> Vec<String> {
    let mut extras = Vec::new();
    if job.gradient_checkpointing == CheckpointPolicy::EveryLayer {
        extras.push("checkpointing".to_owned());
    }
    if job.gradient_accumulation_steps > 1 {
        extras.push(format!("{} micro-batches a step", job.gradient_accumulation_steps));
    }
    let base = job.quantization.map_or_else(String::new, |base| format!(" on {}", base.weights.name()));
    extras.extend(job.lora.as_ref().map(|lora| format!("LoRA r={}{base}", lora.r)));
    extras.extend(job.allocator.expandable_segments.then(|| "expandable segments".to_owned()));
    extras
}

/// The value of `key` as one would type it.
fn value_word(resolved: &Resolved, key: &str) -> String {
    let value = resolved.provenance.iter().find(|value| value.key == key);
    value.map_or_else(String::new, |value| value.value.trim_matches('"').to_owned())
}

/// One row a kind of phase: the highest of all steps.
fn phase_table(estimate: &Estimate, look: &Look) -> String {
    let mut rows: Vec<(PhaseKind, u64, u64)> = Vec::new();
    for peak in &estimate.peak_per_phase {
        match rows.iter_mut().find(|(kind, ..)| *kind == peak.phase.kind) {
            Some((_, allocated, reserved)) => {
                *allocated = (*allocated).max(peak.allocated);
                *reserved = (*reserved).max(peak.reserved);
            }
            None => rows.push((peak.phase.kind, peak.allocated, peak.reserved)),
        }
    }
    let columns =
        [("phase", Align::Left), ("peak allocated", Align::Right), ("reserved", Align::Right), ("", Align::Left)];
    let mut table = Table::new(&columns);
    let binding = estimate.peak_phase;
    for (kind, allocated, reserved) in rows {
        let binds = kind == binding.kind;
        let bar = look.bar(allocated as f64 / estimate.peak_allocated_bytes.max(1) as f64, bar_width(look));
        let arrow = look.pick(" ◀ peak", " < peak");
        let mark = if binds { format!("{bar}{arrow}, step {}", binding.step) } else { bar };
        let style = if binds { BOLD } else { anstyle::Style::new() };
        table.row(vec![
            styled_cell(kind.name().replace('_', " "), style),
            styled_cell(Bytes(allocated).to_string(), style),
            styled_cell(Bytes(reserved).to_string(), DIM),
            styled_cell(mark, style),
        ]);
    }
    format!("{}\n", table.render(look))
}

fn at_peak(estimate: &Estimate, look: &Look) -> String {
    let mut shares: Vec<_> =
        Category::ALL.into_iter().zip(estimate.at_peak.by_category).filter(|(_, bytes)| *bytes > 0).collect();
    shares.small_sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let total = estimate.peak_allocated_bytes.max(1) as f64;
    let title = format!("at the peak, {}", estimate.peak_phase.label());
    let small = |bytes: u64| (bytes as f64) < total * SMALL;
    let rest: u64 = shares.iter().map(|(_, bytes)| *bytes).filter(|bytes| small(*bytes)).sum();
    let rest = rest + estimate.at_peak.unsplit_bytes;
    shares.retain(|(_, bytes)| !small(*bytes));
    let mut table = Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Right), ("", Align::Left)]);
    for (category, bytes) in shares {
        let share = bytes as f64 / total;
        table.row(vec![
            category::shown_as(category).title.into(),
            Bytes(bytes).to_string().into(),
            styled_cell(percent_text(share), DIM),
            styled_cell(look.bar(share, bar_width(look)), category::category_style(category)),
        ]);
    }
    if rest > 0 {
        let (bytes, share) = (Bytes(rest).to_string(), percent_text(rest as f64 / total));
        table.row(vec![styled_cell("all else", DIM), styled_cell(bytes, DIM), styled_cell(share, DIM)]);
    }
    format!("  {}\n{}\n", paint_text(DIM, &title), table.render(look))
}

pub(super) fn bar_width(look: &Look) -> usize {
    look.width.saturating_sub(BESIDE_BAR).clamp(4, BAR)
}

pub(super) fn percent_text(share: f64) -> String {
    if share > 0.0 && share < 0.005 { "<1 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}

fn caveat_lines(estimate: &Estimate, look: &Look) -> String {
    let line = |text: &str| format!("{} {}\n", paint_text(WARN, "!"), wrap_text(&printable(text), look.width, 2));
    let text: String =
        estimate.caveats.iter().filter(|caveat| !caveat.leads).map(|caveat| line(&caveat.text)).collect();
    if text.is_empty() { text } else { format!("{text}\n") }
}

/// The command that finds what fits.
pub fn way_out(plan: &str, look: &Look) -> String {
    format!(
        "{}\n",
        paint_text(DIM, &wrap_text(&format!("{} {plan}   finds what fits", look.pick("→", "->")), look.width, 2))
    )
}

/// One thing worth trying.
pub fn next(answer: &Answer, look: &Look) -> String {
    let (job, estimate) = (&answer.resolved.job, &answer.estimate);
    let at_peak = |category: Category| estimate.at_peak.by_category[category as usize];
    let fragmented = estimate.unused_reserved_bytes() > estimate.peak_reserved_bytes / 10
        && estimate.peak_allocated_bytes + estimate.outside.high <= estimate.usable_bytes;
    let may_run = !matches!(estimate.verdict, Verdict::DoesNotFit(_));
    let advice = match &estimate.verdict {
        _ if may_run && shown_bound(estimate.safe_bytes).is_none() => {
            "tonnage rehearse -- python your_script.py runs the whole of it without a GPU, and says what it takes"
        }
        _ if answer.carriers.is_some() => {
            "name a GPU for a verdict: --gpu l4, or --gpu live for the one in this machine"
        }
        Verdict::Fits => "--timeline draws the step, --explain says where every value came from",
        _ if fragmented && !job.allocator.expandable_segments => "try --allocator expandable_segments:True",
        _ if !job.task.trains() => "try a smaller --micro-batch-size",
        _ if job.gradient_checkpointing == CheckpointPolicy::Off
            && at_peak(Category::Activation) > estimate.peak_allocated_bytes / 3 =>
        {
            "try --compare gradient_checkpointing=false,true"
        }
        _ if job.precision == Precision::Fp32 => "try --compare fp32,amp-bf16,bf16",
        _ if at_peak(Category::OptimizerState) > estimate.peak_allocated_bytes / 3 => {
            "try --lora-r 16, or --compare adamw,adamw_fused,sgd"
        }
        _ if job.micro_batch_size > 1 => "try a smaller --micro-batch-size with more --gradient-accumulation-steps",
        _ => "try a shorter --seq-len, or a larger --gpu",
    };
    let line = format!("{} {advice}", look.pick("→", "->"));
    format!("{}\n", paint_text(DIM, &wrap_text(&line, look.width, 2)))
}
