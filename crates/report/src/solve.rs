//! [`SolveAnswer`]: the largest value of a key by variant and GPU, which every format shows.

use serde::Serialize;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::JobSpec;
use tonnage_core::plan::solve::{Solution, Tried};

use crate::answer::fit_name;
use crate::fit::quoted_cell;
use crate::view::VERSION;

/// What is shown.
pub struct SolveAnswer {
    /// The job as it was handed over.
    pub job: JobSpec,
    /// The key that is solved for, as a job file names it.
    pub key: String,
    /// The GPUs, a column each.
    pub gpus: Vec<Gpu>,
    /// The variants of the job, a row each.
    pub rows: Vec<SolveRow>,
}

/// A variant of the job.
pub struct SolveRow {
    /// What it changes: keys and values.
    pub changes: Vec<(String, String)>,
    /// What was found on each GPU, or why there is no such job.
    pub cells: Vec<Result<Solution, String>>,
}

impl SolveAnswer {
    /// Whether any value fits anywhere.
    pub fn fits(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.cells).flatten().any(|solution| solution.best.is_some())
    }
}

/// What `--json` prints (docs/json.md).
#[derive(Serialize)]
pub struct SolveView<'a> {
    version: u32,
    model: &'a str,
    key: &'a str,
    rows: Vec<RowView<'a>>,
}

#[derive(Serialize)]
struct RowView<'a> {
    changes: serde_json::Map<String, serde_json::Value>,
    gpus: Vec<CellView<'a>>,
}

#[derive(Serialize)]
struct CellView<'a> {
    gpu: &'a str,
    usable_bytes: u64,
    value: Option<u64>,
    total_bytes: Option<u64>,
    safe_bytes: Option<u64>,
    next: Option<NextView>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct NextView {
    value: u64,
    verdict: Option<&'static str>,
    total_bytes: Option<u64>,
    safe_bytes: Option<u64>,
    error: Option<String>,
}

impl<'a> SolveView<'a> {
    /// The document for `answer`.
    pub fn new(answer: &'a SolveAnswer) -> Self {
        let row = |row: &'a SolveRow| RowView {
            changes: row.changes.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect(),
            gpus: answer.gpus.iter().zip(&row.cells).map(|(gpu, cell)| CellView::new(gpu, cell)).collect(),
        };
        Self {
            version: VERSION,
            model: &answer.job.model.name,
            key: &answer.key,
            rows: answer.rows.iter().map(row).collect(),
        }
    }
}

impl<'a> CellView<'a> {
    fn new(gpu: &'a Gpu, cell: &'a Result<Solution, String>) -> Self {
        let solution = cell.as_ref().ok();
        let best = solution.and_then(|solution| solution.best.as_ref());
        let next = solution.and_then(|solution| solution.next.as_ref());
        Self {
            gpu: &gpu.id,
            usable_bytes: gpu.usable_bytes,
            value: best.map(|(value, _)| *value),
            total_bytes: best.map(|(_, verdict)| verdict.total_bytes),
            safe_bytes: best.map(|(_, verdict)| verdict.safe_bytes),
            next: next.map(|(value, tried)| NextView::new(*value, tried)),
            error: cell.as_ref().err().map(String::as_str),
        }
    }
}

impl NextView {
    fn new(value: u64, tried: &Tried) -> Self {
        let verdict = tried.as_ref().ok();
        Self {
            value,
            verdict: verdict.map(|verdict| fit_name(verdict.fit)),
            total_bytes: verdict.map(|verdict| verdict.total_bytes),
            safe_bytes: verdict.map(|verdict| verdict.safe_bytes),
            error: tried.as_ref().err().map(ToString::to_string),
        }
    }
}

/// The cells as comma-separated values, a line each, for spreadsheets.
pub fn solve_csv(answer: &SolveAnswer) -> String {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in answer.rows.iter().flat_map(|row| &row.changes) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let fixed = "key,gpu,usable_bytes,value,total_bytes,safe_bytes,next_value,next_verdict,next_total_bytes,error";
    let mut text: String = keys.iter().map(|key| format!("{key},")).collect::<String>() + fixed + "\n";
    for row in &answer.rows {
        let value = |key: &str| row.changes.iter().find(|(changed, _)| changed == key).map_or("", |(_, value)| value);
        let changes: String = keys.iter().map(|key| quoted_cell(value(key)) + ",").collect();
        for (gpu, cell) in answer.gpus.iter().zip(&row.cells) {
            let view = CellView::new(gpu, cell);
            let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
            let next = view.next.as_ref();
            let error = view.error.or_else(|| next?.error.as_deref()).unwrap_or_default();
            text.push_str(&format!(
                "{changes}{},{},{},{},{},{},{},{},{},{}\n",
                quoted_cell(&answer.key),
                quoted_cell(view.gpu),
                view.usable_bytes,
                number(view.value),
                number(view.total_bytes),
                number(view.safe_bytes),
                number(next.map(|next| next.value)),
                next.and_then(|next| next.verdict).unwrap_or_default(),
                number(next.and_then(|next| next.total_bytes)),
                quoted_cell(error),
            ));
        }
    }
    text
}
