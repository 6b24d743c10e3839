//! The screen of a rehearsal: what ran, the verdict, the phases, the peak and the lines that make it, other GPUs, and what
//! was not seen.

use std::fmt::Write;

use tonnage_core::estimate::Fit;
use tonnage_core::gpu::{CatalogGpu, Gpu};
use tonnage_core::recording::Recording;
use tonnage_core::rehearsal::{
    AtPeak, Caveat, LiveLine, OutOfMemory, ProcessRecord, Rehearsal, RehearsedVerdict, Seen, Unrecorded, VerdictSource,
    device_differences,
};
use tonnage_core::units::Bytes;

use super::fits_from;
use super::paint::{BOLD, DIM, WARN, fit_style, paint_text, wrap_text};
use super::rehearsal_driver::driver_screen;
use super::table::{Align, Table, styled_cell};
use crate::answer::fit_name;
use crate::category;
use crate::look::Look;

/// Most lines of the script that are shown.
const LINES: usize = 8;

/// The screen for `rehearsal`.
pub fn rehearsal_screen(rehearsal: &Rehearsal, look: &Look) -> String {
    let Some(seen) = rehearsal.fullest() else { return driver_screen(rehearsal, look) };
    let mut text = rehearsal_head(rehearsal, look);
    text.push_str(&failure_lines(rehearsal, look));
    if let Some(on_gpu) = rehearsal.verdict_on(&rehearsal.gpu) {
        text.push_str(&match rehearsal.carriers() {
            Some(carriers) => size_lines(rehearsal, &on_gpu, &reserved_by_pytorch(&on_gpu, seen), &carriers, look),
            None => verdict_headline(&on_gpu, rehearsal.known_fit(&on_gpu), &reserved_by_pytorch(&on_gpu, seen), look),
        });
    }
    text.push_str(&other_gpus(rehearsal, look));
    text.push_str(&rank_table(rehearsal, look));
    text.push_str(&phase_table(seen, look));
    text.push_str(&peak_lines(seen, look));
    text.push_str(&ending_lines(rehearsal, look));
    text
}

/// What PyTorch holds of the total.
fn reserved_by_pytorch(on_gpu: &RehearsedVerdict, seen: &Seen) -> String {
    if on_gpu.processes > 1 {
        return format!("{} held by {} processes on one GPU", Bytes(on_gpu.peak_reserved_bytes), on_gpu.processes);
    }
    let (reserved, allocated) = (Bytes(on_gpu.peak_reserved_bytes), Bytes(seen.device.peak_allocated_bytes));
    format!("{reserved} reserved by PyTorch ({allocated} allocated)")
}

/// What ran, where, for how long.
fn rehearsal_head(rehearsal: &Rehearsal, look: &Look) -> String {
    let dot = look.pick(" · ", " | ");
    let Some(process) = rehearsal.processes.first() else { return String::new() };
    let count = if rehearsal.gpus > 1 { format!("{} x ", rehearsal.gpus) } else { String::new() };
    let mut parts = vec![format!("phantom {count}{}", rehearsal.gpu.name)];
    let steps = rehearsal.processes.iter().map(|process| process.steps).max().unwrap_or(0);
    parts.push(format!("{steps} optimizer steps in {:.1} s", rehearsal.wall_seconds));
    let version = |name: &str| process.versions.get(name).map(|version| format!("{name} {version}"));
    parts.extend(["torch", "transformers", "trl", "peft", "accelerate"].into_iter().filter_map(version));
    let name = process.command.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    format!(
        "{}\n{}\n\n",
        paint_text(BOLD, &wrap_text(&format!("rehearsed: {name}"), look.width, 2)),
        wrap_text(&parts.join(dot), look.width, 2)
    )
}

/// That the command failed for reasons of its own, before any verdict: that is one on less than the whole.
pub(super) fn failure_lines(rehearsal: &Rehearsal, look: &Look) -> String {
    if rehearsal.ended_well() || rehearsal.ran_out() || rehearsal.is_waiting() {
        return String::new();
    }
    if rehearsal.processes.iter().any(|process| process.stop.reason == "signal") {
        return format!("{} it was asked to end: the figures are those up to there\n\n", paint_text(WARN, "!"));
    }
    let code = rehearsal.exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
    let line = format!("the command failed{code}: the figures are those up to there");
    format!("{} {}\n\n", paint_text(WARN, "!"), wrap_text(&line, look.width, 2))
}

/// What a script needs that names no GPU, and who carries it.
pub(super) fn size_lines(
    rehearsal: &Rehearsal,
    on_gpu: &RehearsedVerdict,
    taken: &str,
    carriers: &[(&'static CatalogGpu, Fit)],
    look: &Look,
) -> String {
    let total = paint_text(BOLD, &Bytes(on_gpu.total_bytes).to_string());
    let line = format!("{total}   as on {}: no GPU was named", rehearsal.gpu.name);
    let sum = format!("{taken} + {} CUDA context", Bytes(on_gpu.context_bytes));
    let of = |wanted: Fit| fits_from::of_fit(carriers.iter().copied(), wanted);
    let listed = fits_from::listed_gpus(&of(Fit::Fits), &of(Fit::Tight), look);
    let how = match on_gpu.by {
        VerdictSource::Driver => format!("by what it took as on {}, with the context of each", rehearsal.gpu.name),
        _ => format!("its requests as on {}, within the memory of each", rehearsal.gpu.name),
    };
    let dim = |text: &str| paint_text(DIM, &wrap_text(text, look.width, 2));
    format!("{}\n  {}\n{listed}  {}\n\n", wrap_text(&line, look.width, 2), dim(&sum), dim(&how))
}

/// The verdict for the GPU that the script ran on.
pub(super) fn verdict_headline(on_gpu: &RehearsedVerdict, verdict: Option<Fit>, taken: &str, look: &Look) -> String {
    let (sign, word) = match verdict {
        Some(Fit::Fits) => (look.pick("✔ ", ""), "fits"),
        Some(Fit::Tight) => (look.pick("▲ ", ""), "tight"),
        Some(Fit::DoesNotFit) => (look.pick("✘ ", ""), "does not fit"),
        Some(Fit::NotKnown) | None => (look.pick("▲ ", ""), "not known"),
    };
    let (total, usable) = (Bytes(on_gpu.total_bytes), Bytes(on_gpu.usable_bytes));
    let known = verdict.is_some();
    let verdict = paint_text(verdict.map_or(WARN, fit_style), &format!("{sign}{word}"));
    let context = Bytes(on_gpu.context_bytes);
    if let Some(oom) = &on_gpu.out_of_memory {
        if on_gpu.by == VerdictSource::Driver {
            return format!("{verdict}   {}\n\n", wrap_text(&refused_line(oom, context, usable), look.width, 2));
        }
        let at = if oom.line.is_empty() { String::new() } else { format!(" at {}", oom.line) };
        let line = format!(
            "out of memory in {}{at}: asks for {} with {} allocated and {} reserved, beside {context} of CUDA context",
            oom.phase,
            Bytes(oom.requested_bytes),
            Bytes(oom.allocated_bytes),
            Bytes(oom.reserved_bytes)
        );
        let least = oom.requested_bytes.saturating_add(oom.allocated_bytes).saturating_add(on_gpu.context_bytes);
        let needs = format!("needs at least {} of {usable} usable", paint_text(BOLD, &Bytes(least).to_string()));
        return format!("{verdict}   {needs}\n  {}\n\n", wrap_text(&line, look.width, 2));
    }
    let headroom = Bytes(on_gpu.usable_bytes.saturating_sub(on_gpu.total_bytes));
    let share = on_gpu.total_bytes as f64 / on_gpu.usable_bytes.max(1) as f64;
    let sum = format!("{taken} + {context} CUDA context, {:.0}\u{a0}%", share * 100.0);
    let total = paint_text(BOLD, &total.to_string());
    let reached = if known {
        format!("{total} of {usable} usable, {headroom} to spare")
    } else {
        format!("reached {total} of {usable} usable")
    };
    let mut text = format!("{verdict}   {reached}\n  {}\n", paint_text(DIM, &wrap_text(&sum, look.width, 2)));
    if on_gpu.num_alloc_retries > 0 {
        let times = on_gpu.num_alloc_retries;
        let line = match on_gpu.by {
            VerdictSource::Driver => format!("was refused memory {times} times and went on"),
            _ => format!(
                "runs only because the allocator flushes its cache and tries again {times} times, which is slow"
            ),
        };
        let _ = writeln!(text, "  {}", wrap_text(&line, look.width, 2));
    }
    text.push('\n');
    text
}

/// That the driver had no room, and the command failed.
fn refused_line(oom: &OutOfMemory, context: Bytes, usable: Bytes) -> String {
    let (asked, held) = (Bytes(oom.requested_bytes), Bytes(oom.reserved_bytes));
    format!(
        "the driver refused {asked} beside the {held} that were taken and {context} of CUDA context, of {usable} usable; then the \
         command failed"
    )
}

/// The verdicts for several GPUs.
pub(super) fn other_gpus(rehearsal: &Rehearsal, look: &Look) -> String {
    if rehearsal.asked.len() < 2 {
        return String::new();
    }
    let columns = [
        ("gpu", Align::Left),
        ("verdict", Align::Left),
        ("usable", Align::Right),
        ("retries", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns).wrapped();
    for gpu in &rehearsal.asked {
        let Some(on_gpu) = rehearsal.verdict_on(gpu) else { continue };
        let note = on_gpu.out_of_memory.as_ref().map_or_else(
            || device_differences(gpu, &rehearsal.gpu).join("; "),
            |oom| {
                let phase = if oom.phase.is_empty() { String::new() } else { format!(" in {}", oom.phase) };
                format!("out of memory{phase}, asking for {}", Bytes(oom.requested_bytes))
            },
        );
        table.row(vec![
            gpu_name(gpu).into(),
            rehearsal.known_fit(&on_gpu).map_or_else(
                || styled_cell("not known", WARN),
                |verdict| styled_cell(fit_name(verdict).replace('_', " "), fit_style(verdict)),
            ),
            Bytes(gpu.usable_bytes).to_string().into(),
            on_gpu.num_alloc_retries.to_string().into(),
            styled_cell(note, DIM),
        ]);
    }
    let replayed = rehearsal.seen.iter().all(|seen| seen.recording.is_some());
    let means = match replayed {
        _ if rehearsal.seen.is_empty() => "what it took, though with less memory an allocator may keep less unused",
        true => "replaying its trace within their memory",
        false => "its peaks alone, for want of a trace",
    };
    let how = format!("one run on the {}; the others by {means}", gpu_name(&rehearsal.gpu));
    format!("{}  {}\n\n", table.render(look), paint_text(DIM, &wrap_text(&how, look.width, 2)))
}

/// The id; a custom GPU goes by its size, which stands in a column of its own.
fn gpu_name(gpu: &Gpu) -> &str {
    if gpu.id == "custom" { &gpu.name } else { &gpu.id }
}

/// Peaks of every rank, where there are several.
fn rank_table(rehearsal: &Rehearsal, look: &Look) -> String {
    if rehearsal.seen.len() < 2 {
        return String::new();
    }
    let columns = [
        ("rank", Align::Right),
        ("device", Align::Right),
        ("peak allocated", Align::Right),
        ("reserved", Align::Right),
        ("peak in", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for seen in &rehearsal.seen {
        table.row(vec![
            seen.rank.to_string().into(),
            seen.device.index.to_string().into(),
            Bytes(seen.device.peak_allocated_bytes).to_string().into(),
            styled_cell(Bytes(seen.device.peak_reserved_bytes).to_string(), DIM),
            styled_cell(seen.device.peak_phase.clone(), DIM),
        ]);
    }
    format!("{}\n", table.render(look))
}

/// One row a kind of phase: the highest of all steps.
fn phase_table(seen: &Seen, look: &Look) -> String {
    let mut rows: Vec<(&str, u64, u64)> = Vec::new();
    let reserved = &seen.device.peak_reserved_per_phase.0;
    for (label, bytes) in &seen.device.peak_per_phase.0 {
        let name = label.split_once(':').map_or(label.as_str(), |(_, name)| name);
        let held = reserved.iter().find(|(other, _)| other == label).map_or(0, |(_, bytes)| *bytes);
        match rows.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, most, most_held)) => (*most, *most_held) = ((*most).max(*bytes), (*most_held).max(held)),
            None => rows.push((name, *bytes, held)),
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let columns =
        [("phase", Align::Left), ("peak allocated", Align::Right), ("reserved", Align::Right), ("", Align::Left)];
    let mut table = Table::new(&columns);
    let most = seen.device.peak_allocated_bytes.max(1) as f64;
    let binding = seen.device.peak_phase.split_once(':').unwrap_or_default();
    for (name, allocated, held) in rows {
        let bar = look.bar(allocated as f64 / most, super::estimate::bar_width(look));
        let arrow = look.pick(" ◀ peak", " < peak");
        let (style, mark) = if name == binding.1 {
            (BOLD, format!("{bar}{arrow}, step {}", binding.0))
        } else {
            (anstyle::Style::new(), bar)
        };
        table.row(vec![
            styled_cell(name.replace('_', " "), style),
            styled_cell(Bytes(allocated).to_string(), style),
            styled_cell(Bytes(held).to_string(), DIM),
            styled_cell(mark, style),
        ]);
    }
    format!("{}\n", table.render(look))
}

/// What the peak consists of, and the lines that made it.
fn peak_lines(seen: &Seen, look: &Look) -> String {
    let in_phase = |recording| AtPeak::in_phase(recording, &seen.device.peak_phase);
    let Some(peak) = seen.recording.as_ref().map(in_phase).filter(|peak| peak.bytes > 0) else {
        return String::new();
    };
    let at = if peak.line.is_empty() { String::new() } else { format!(", reached at {}", peak.line) };
    let columns = [("", Align::Right), ("", Align::Left), ("", Align::Left), ("", Align::Left), ("", Align::Left)];
    // A recording without phases of its job has those of the reader of snapshots.
    let knows_phases = seen.recording.as_ref().is_some_and(Recording::has_phases);
    let mut table = Table::new(&columns).flexible(4).flexible(2);
    for live in peak.by_line.iter().take(LINES) {
        table.row(vec![
            Bytes(live.bytes).to_string().into(),
            section_title(&live.category).into(),
            live.op.as_str().into(),
            styled_cell(born(live, knows_phases), DIM),
            styled_cell(short_line(&live.line), DIM),
        ]);
    }
    let left = peak.by_line.len().saturating_sub(LINES);
    let more = if left > 0 { paint_text(DIM, &format!("  {left} more lines\n")) } else { String::new() };
    let phase = if knows_phases { format!(", {}", peak.phase) } else { String::new() };
    let head = format!("alive at the peak{phase}{at}");
    format!("  {}\n{}{more}\n", paint_text(DIM, &wrap_text(&head, look.width, 2)), table.render(look))
}

/// How many allocations, and the phase in which they were made.
fn born(live: &LiveLine, knows_phases: bool) -> String {
    let phase = if knows_phases { format!(", {}", live.phase) } else { String::new() };
    format!("{} x{phase}", live.count)
}

/// `train.py:41` of `/home/me/train.py:41 in main`.
fn short_line(line: &str) -> &str {
    let place = line.split(" in ").next().unwrap_or_default();
    place.rsplit('/').next().unwrap_or_default()
}

/// What people call a category.
fn section_title(name: &str) -> String {
    let known = tonnage_core::trace::Category::ALL.into_iter().find(|category| category.name() == name);
    known.map_or_else(|| name.to_owned(), |category| category::shown_as(category).title.to_owned())
}

/// How it ended, what it took of the host, and what was not seen.
fn ending_lines(rehearsal: &Rehearsal, look: &Look) -> String {
    let mut text = String::new();
    let Some(process) = rehearsal.processes.first() else { return text };
    let host: u64 = rehearsal.processes.iter().filter_map(|process| process.host_peak_bytes).sum();
    let together = match rehearsal.processes.len() {
        0 | 1 => String::new(),
        count => format!(" in {count} processes"),
    };
    let host = if host > 0 { format!("; {} of host memory{together}", Bytes(host)) } else { String::new() };
    let place = process.stop.place.as_ref().map_or_else(String::new, |place| format!(" (at {place})"));
    let _ = writeln!(text, "{}", wrap_text(&format!("{}{place}{host}", process.stop.message), look.width, 2));
    for line in warning_lines(rehearsal, process) {
        let _ = writeln!(text, "{} {}", paint_text(WARN, "!"), wrap_text(&line, look.width, 2));
    }
    text
}

fn warning_lines(rehearsal: &Rehearsal, process: &ProcessRecord) -> Vec<String> {
    let mut lines = Vec::new();
    if process.stopped_here() {
        // What was looked at to its end holds no longer rows.
        let longest = process.caveats.iter().any(|caveat| caveat.code == "longest");
        let batches = if longest { "" } else { ", longer batches" };
        lines.push(format!("the script was stopped: what it does later (evaluation, saving{batches}) was not seen"));
        if let Some(code) = rehearsal.exit_code.filter(|code| *code != 0 && rehearsal.ended_well()) {
            lines.push(format!(
                "the command ended with exit code {code} after its processes were stopped here: a launcher may take that for a crash; \
                 what another program of the command would have needed was not seen"
            ));
        }
    }
    if let Some(held) = rehearsal.unrecorded.iter().map(Unrecorded::peak_bytes).max() {
        let count = rehearsal.unrecorded.len();
        lines.push(format!(
            "{count} more processes used the GPU and left no record (Python with -E, -I or -S, a native program, or one that was \
             killed); they held at most {}",
            Bytes(held)
        ));
    }
    let caught = process.out_of_memory.len();
    if caught > 0 && !rehearsal.ran_out() {
        let times = if caught == 1 { "once".to_owned() } else { format!("{caught} times") };
        lines.push(format!(
            "memory ran out {times} and the script went on: the figures are the highest of all it tried"
        ));
    }
    if process.steady_since.is_none() && process.steps > 0 && process.stop.reason != "end" {
        lines.push("the peak still grew in the last step: ask for more --steps".to_owned());
    }
    let traced = rehearsal.seen.iter().any(|seen| seen.pid == process.pid && seen.recording.is_some());
    let lacking = if traced { "the trace ends before the run does" } else { "there is no trace" };
    lines.extend(process.trace_ends.iter().map(|why| format!("{lacking}: {why}")));
    lines.extend(told_caveats(&rehearsal.processes).into_iter().map(caveat_line));
    lines
}

/// The caveats of all processes; what ranks of one script tell of the same lines, with numbers of their own, is told once.
fn told_caveats(processes: &[ProcessRecord]) -> Vec<&Caveat> {
    let mut told: Vec<&Caveat> = Vec::new();
    for caveat in processes.iter().flat_map(|process| &process.caveats) {
        if !told.iter().any(|known| known.code == caveat.code && known.lines == caveat.lines) {
            told.push(caveat);
        }
    }
    told
}

fn caveat_line(caveat: &Caveat) -> String {
    let line = match (caveat.lines.as_slice(), &caveat.line) {
        ([first, others @ ..], _) if !others.is_empty() => format!(" (at {first}, {})", others.join(", ")),
        (_, Some(line)) => format!(" (first at {line})"),
        (_, None) => String::new(),
    };
    format!("{}{line}", caveat.text)
}
