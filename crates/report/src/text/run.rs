//! Runs: the list of all, and one with its attempts, what was predicted beside what was seen.

use tonnage_core::printable::printable;
use tonnage_core::record::{
    AttemptState, MemoryRecord, NodeState, PeaksRecord, Phase, PredictionRecord, ResultRecord, RunRecord, RunState,
};
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, WARN, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::look::Look;
use crate::run::{RunLine, batch_words, node_progress, phase_words};
use crate::words::shell_words;

/// The screen for all runs.
pub fn run_table(lines: &[RunLine], look: &Look) -> String {
    if lines.is_empty() {
        return "no runs yet\n".to_owned();
    }
    let columns = ["run", "state", "attempts", "progress", "command"];
    let mut table = Table::new(&columns.map(|title| (title, Align::Left))).flexible(4);
    for line in lines {
        let state = if line.lives { styled_cell(line.state.as_str(), BOLD) } else { line.state.as_str().into() };
        table.row(vec![
            line.id.as_str().into(),
            state,
            line.attempts.to_string().into(),
            line.progress.as_str().into(),
            styled_cell(printable(&line.command), DIM),
        ]);
    }
    table.render(look)
}

/// The screen for one run; `full` shows what each attempt was given.
pub fn run_screen(run: &RunRecord, state: &RunState, line: &RunLine, full: bool, look: &Look) -> String {
    let mut text = format!("{}  {}\n", paint_text(BOLD, &run.id), line.state);
    let mut say = |label: &str, what: &str| text.push_str(&labelled_line(label, what, look));
    say("command", &printable(&shell_words(&run.command)));
    if let Some(preflight) = &state.preflight {
        say("preflight", preflight);
    }
    if let Some(Ok(rows)) = state.effective_batch() {
        say("effective batch", &format!("{rows} rows in every optimizer step of every attempt"));
    }
    if let Some(Err(sizes)) = state.effective_batch() {
        say("effective batch", &paint_text(WARN, &format!("differs between attempts: {sizes:?}")));
    }
    if !line.progress.is_empty() {
        say("progress", &line.progress);
    }
    if state.attempts() > 0 || line.lives {
        for (index, node) in state.nodes.iter().enumerate() {
            text.push_str(&node_text((run, index), node, line.lives, full, look));
        }
    }
    if let Some(memory) = &state.memory {
        text.push_str(&labelled_line("memory", &memory_words(memory), look));
    }
    if let Some(result) = &state.result {
        text.push_str(&labelled_line("result", &result_words(state, result), look));
    }
    text
}

/// Predicted, rehearsed and measured, as far as they are known.
fn memory_words(memory: &MemoryRecord) -> String {
    let peaks = |word: &str, peaks: Option<PeaksRecord>| {
        let PeaksRecord { peak_allocated_bytes: allocated, peak_reserved_bytes: reserved } = peaks?;
        Some(format!("{word} {} allocated and {} reserved", Bytes(allocated), Bytes(reserved)))
    };
    let on_gpu = [
        peaks("predicted", memory.predicted),
        peaks("rehearsed", memory.rehearsed),
        peaks("measured", memory.measured),
    ];
    let on_gpu = on_gpu.into_iter().flatten().collect::<Vec<_>>().join("; ");
    // A training on the CPU has measured nothing of the GPU that its estimate is for.
    let of_gpu = (!on_gpu.is_empty()).then(|| format!("{}: {on_gpu}", printable(&memory.gpu)));
    let of_host = memory.measured_host_bytes.map(|bytes| format!("measured {} of host memory", Bytes(bytes)));
    of_gpu.into_iter().chain(of_host).collect::<Vec<_>>().join("; ")
}

/// Why it ended, and what it took; what the preflight has said is not said again.
fn result_words(state: &RunState, result: &ResultRecord) -> String {
    let new = state.preflight.as_deref().and_then(|said| result.reason.strip_prefix(said));
    let reason =
        new.map_or_else(|| printable(&result.reason), |new| format!("refused before the start{}", printable(new)));
    let cost = &result.cost;
    let lost = match cost.lost_seconds {
        0.0 => String::new(),
        lost => format!(", of which {lost:.1} s in attempts that failed"),
    };
    format!("{reason}; {:.1} s{lost}", cost.seconds)
}

fn labelled_line(label: &str, what: &str, look: &Look) -> String {
    format!("{} {}\n", paint_text(DIM, &format!("{label:<16}")), wrap_text(what, look.width, 17))
}

fn node_text((run, index): (&RunRecord, usize), node: &NodeState, lives: bool, full: bool, look: &Look) -> String {
    let mut text = String::new();
    let name = run.nodes.get(index).map_or("", |node| node.name.as_str());
    if !name.is_empty() {
        text.push_str(&labelled_line(name, &node_words(node, lives), look));
    }
    let shown = if full { 0 } else { node.attempts.len().saturating_sub(3) };
    match shown {
        0 => {}
        1 => text.push_str(&labelled_line("attempt 1", "left out here: `tonnage show`", look)),
        _ => text.push_str(&labelled_line(&format!("attempts 1 to {shown}"), "left out here: `tonnage show`", look)),
    }
    for attempt in &node.attempts[shown..] {
        text.push_str(&attempt_text(attempt, full, look));
    }
    if let (Some(said), false) = (&node.said, matches!(node.phase, Phase::Ended(_)) && name.is_empty()) {
        text.push_str(&labelled_line("", &printable(said), look));
    }
    text
}

/// Where a node of several is, and how far.
fn node_words(node: &NodeState, lives: bool) -> String {
    let phase = phase_words(node, lives);
    match node_progress(node, lives, node.progress_ms) {
        progress if progress.is_empty() => phase,
        progress => format!("{phase}, {progress}"),
    }
}

fn attempt_text(attempt: &AttemptState, full: bool, look: &Look) -> String {
    let record = &attempt.record;
    let mut parts = Vec::new();
    parts.extend(record.batch.as_ref().map(batch_words));
    parts.extend(record.predicted.as_ref().map(predicted_words));
    parts.extend(attempt.measured.map(|(_, reserved)| format!("measured {} reserved", Bytes(reserved))));
    parts.extend(attempt.rebatched.iter().map(|(rows, passes)| format!("in the script {rows} rows x {passes} passes")));
    parts.extend(attempt.exit.map(|(exit, seconds)| format!("{} after {seconds:.1} s", exit.words())));
    if let (None, Some(pid)) = (attempt.exit, attempt.pid) {
        parts.push(format!("process {pid}"));
    }
    if let Some(failure) = &attempt.failure {
        let evidence = failure.evidence.first().map(|line| printable(line)).unwrap_or_default();
        let when = if failure.at_start { " at start" } else { "" };
        parts.push(format!("{}{when}: {evidence}", failure.class.title()));
    }
    let mut text = labelled_line(&format!("attempt {}", record.number), &parts.join("; "), look);
    if full {
        if !record.reason.is_empty() {
            text.push_str(&labelled_line("  why", &printable(&record.reason), look));
        }
        text.push_str(&labelled_line("  started", &printable(&shell_words(&record.argv)), look));
        let changes: Vec<_> = record.changes.iter().map(change_words).collect();
        if !changes.is_empty() {
            text.push_str(&labelled_line("  remedies", &changes.join(", "), look));
        }
        if let Some(path) = &record.resume_from {
            text.push_str(&labelled_line("  from", &printable(path), look));
        }
    }
    text
}

/// What a process was predicted to reserve, which is what is measured; and what the GPU was to hold, contexts and all.
fn predicted_words(predicted: &PredictionRecord) -> String {
    let calculated = match predicted.corrected_bytes.saturating_sub(predicted.total_bytes) {
        0 => String::new(),
        _ => format!(" ({} calculated)", Bytes(predicted.total_bytes)),
    };
    let whole = format!("{}{calculated}", Bytes(predicted.corrected_bytes));
    let usable = Bytes(predicted.usable_bytes);
    match (predicted.peak_reserved_bytes, predicted.processes) {
        (0, _) => format!("predicted {whole} of {usable}"),
        (reserved, 0 | 1) => {
            format!("predicted {} reserved, {whole} with its context, of {usable}", Bytes(reserved))
        }
        (reserved, nodes) => {
            format!("predicted {} reserved (the GPU's {nodes} nodes: {whole} of {usable})", Bytes(reserved))
        }
    }
}

fn change_words(change: &tonnage_core::record::ChangeRecord) -> String {
    format!("{} = {} (saves {})", change.key, change.value, Bytes(change.saves_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_not_said_of_a_gpu() {
        let on_cpu =
            MemoryRecord { gpu: "H100".to_owned(), measured_host_bytes: Some(1 << 20), ..MemoryRecord::default() };
        assert_eq!(memory_words(&on_cpu), "measured 1.0 MiB of host memory");
        let predicted = Some(PeaksRecord { peak_allocated_bytes: 1 << 20, peak_reserved_bytes: 1 << 21 });
        let both = memory_words(&MemoryRecord { predicted, ..on_cpu });
        assert!(both.starts_with("H100: predicted") && both.ends_with("; measured 1.0 MiB of host memory"), "{both}");
    }
}
