//! [`FitAnswer`]: a job by rows and GPUs, which every format shows.

use serde::Serialize;
use tonnage_core::estimate::shown_bound;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::JobSpec;
use tonnage_core::plan::batch::Batch;
use tonnage_core::plan::fit::{Cell, NoVerdict};
use tonnage_core::plan::largest::MostRows;
use tonnage_core::plan::table::Row;

use crate::answer::fit_name;
use crate::view::VERSION;

/// What is shown.
pub struct FitAnswer {
    /// The job as it was handed over.
    pub job: JobSpec,
    pub gpus: Vec<Gpu>,
    pub rows: Vec<Row>,
    /// The largest micro-batch for each GPU; empty where nobody asked.
    pub largest: Vec<MostRows>,
}

#[derive(Serialize)]
pub struct FitView<'a> {
    version: u32,
    model: &'a str,
    gpus: Vec<GpuView<'a>>,
    rows: Vec<RowView<'a>>,
    largest: Vec<Option<LargestView>>,
}

#[derive(Serialize)]
struct GpuView<'a> {
    id: &'a str,
    name: &'a str,
    usable_bytes: u64,
}

#[derive(Serialize)]
struct RowView<'a> {
    changes: serde_json::Map<String, serde_json::Value>,
    micro_batch_size: u64,
    gradient_accumulation_steps: u64,
    steps_per_generation: Option<u64>,
    rows_per_step: u64,
    gpus: Vec<CellView<'a>>,
}

#[derive(Serialize)]
struct CellView<'a> {
    gpu: &'a str,
    verdict: Option<&'static str>,
    /// Without a replay: sizes are the least.
    at_least: bool,
    total_bytes: Option<u64>,
    safe_bytes: Option<u64>,
    usable_bytes: u64,
    peak_allocated_bytes: Option<u64>,
    peak_reserved_bytes: Option<u64>,
    peak_phase: Option<String>,
    room: Vec<RoomView>,
    error: Option<String>,
}

#[derive(Serialize)]
struct RoomView {
    lease: Option<u64>,
    processes_per_gpu: u64,
}

/// Without sizes where no batch is known to fit.
#[derive(Default, Serialize)]
struct LargestView {
    micro_batch_size: Option<u64>,
    gradient_accumulation_steps: Option<u64>,
    total_bytes: Option<u64>,
    safe_bytes: Option<u64>,
    more_may_fit: bool,
}

impl LargestView {
    /// `None` where no batch fits.
    fn new(found: &MostRows) -> Option<Self> {
        match found {
            MostRows::Largest(largest) => Some(Self {
                micro_batch_size: Some(largest.batch.micro_batch_size),
                gradient_accumulation_steps: Some(largest.batch.gradient_accumulation_steps),
                total_bytes: Some(largest.verdict.total_bytes),
                safe_bytes: Some(largest.verdict.safe_bytes),
                more_may_fit: largest.more_may_fit,
            }),
            MostRows::Nothing => None,
            MostRows::TooLong => Some(Self { more_may_fit: true, ..Self::default() }),
        }
    }
}

impl<'a> FitView<'a> {
    /// The document for `answer`.
    pub fn new(answer: &'a FitAnswer) -> Self {
        let gpu = |gpu: &'a Gpu| GpuView { id: &gpu.id, name: &gpu.name, usable_bytes: gpu.usable_bytes };
        Self {
            version: VERSION,
            model: &answer.job.model.name,
            gpus: answer.gpus.iter().map(gpu).collect(),
            rows: answer.rows.iter().map(|row| RowView::new(row, &answer.gpus)).collect(),
            largest: answer.largest.iter().map(LargestView::new).collect(),
        }
    }
}

impl<'a> RowView<'a> {
    fn new(row: &'a Row, gpus: &'a [Gpu]) -> Self {
        Self {
            changes: row.changes.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect(),
            micro_batch_size: row.batch.micro_batch_size,
            gradient_accumulation_steps: row.batch.gradient_accumulation_steps,
            steps_per_generation: row.batch.steps_per_generation,
            rows_per_step: row.rows_per_step(),
            gpus: gpus.iter().zip(&row.cells).map(|(gpu, cell)| CellView::new(gpu, cell)).collect(),
        }
    }
}

impl<'a> CellView<'a> {
    fn new(gpu: &'a Gpu, cell: &Cell) -> Self {
        let verdict = cell.as_ref().ok();
        let rooms = verdict.into_iter().flat_map(|verdict| &verdict.room);
        Self {
            gpu: &gpu.id,
            verdict: verdict.map(|verdict| fit_name(verdict.fit)),
            at_least: verdict.is_some_and(|verdict| verdict.at_least),
            total_bytes: verdict.map(|verdict| verdict.total_bytes),
            safe_bytes: verdict.and_then(|verdict| shown_bound(verdict.safe_bytes)),
            usable_bytes: gpu.usable_bytes,
            peak_allocated_bytes: verdict.map(|verdict| verdict.peak_allocated_bytes),
            peak_reserved_bytes: verdict.map(|verdict| verdict.peak_reserved_bytes),
            peak_phase: verdict.map(|verdict| verdict.peak_phase.label()),
            room: rooms.map(|room| RoomView { lease: room.lease, processes_per_gpu: room.processes }).collect(),
            error: cell.as_ref().err().map(NoVerdict::to_string),
        }
    }
}

/// The cells as comma-separated values, a line each, for spreadsheets.
pub fn fit_csv(answer: &FitAnswer) -> String {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in answer.rows.iter().flat_map(|row| &row.changes) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let fixed = "micro_batch_size,gradient_accumulation_steps,rows_per_step,gpu,usable_bytes,verdict,total_bytes,safe_bytes,peak_allocated_bytes,peak_reserved_bytes,peak_phase,processes_that_fit,error";
    let mut text: String = keys.iter().map(|key| format!("{key},")).collect::<String>() + fixed + "\n";
    for row in &answer.rows {
        let value = |key: &str| row.changes.iter().find(|(changed, _)| changed == key).map_or("", |(_, value)| value);
        let changes: String = keys.iter().map(|key| quoted_cell(value(key)) + ",").collect();
        for (gpu, cell) in answer.gpus.iter().zip(&row.cells) {
            let end = match cell {
                Ok(verdict) => format!(
                    "{},{},{},{},{},{},{},{}",
                    fit_name(verdict.fit),
                    verdict.total_bytes,
                    shown_bound(verdict.safe_bytes).map_or_else(String::new, |bytes| bytes.to_string()),
                    verdict.peak_allocated_bytes,
                    verdict.peak_reserved_bytes,
                    verdict.peak_phase.label(),
                    // Without a lease, where processes share a GPU at all.
                    verdict.room.first().map_or_else(String::new, |room| room.processes.to_string()),
                    if verdict.at_least { "sizes are the least: not replayed" } else { "" }
                ),
                Err(problem) => format!(",,,,,,,{}", quoted_cell(&problem.to_string())),
            };
            let Batch { micro_batch_size, gradient_accumulation_steps, .. } = row.batch;
            let batch = format!("{micro_batch_size},{gradient_accumulation_steps},{}", row.rows_per_step());
            text.push_str(&format!("{changes}{batch},{},{},{end}\n", quoted_cell(&gpu.id), gpu.usable_bytes));
        }
    }
    text
}

/// A field that a reader of CSV takes for one (RFC 4180).
pub(crate) fn quoted_cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted_cell("a"), "a");
        assert_eq!(quoted_cell("24GiB,sm_86"), "\"24GiB,sm_86\"");
        assert_eq!(quoted_cell("say \"x\""), "\"say \"\"x\"\"\"");
    }
}
