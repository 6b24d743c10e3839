//! GPU memory of runs: predicted, rehearsed and measured.

use super::Context;
use crate::document::{Block, Cell, Table};
use crate::figure::{Figure, Mark};
use crate::run::Run;

const GIB: f64 = (1u64 << 30) as f64;

pub(super) fn section(context: &Context<'_>) -> Vec<Block> {
    let said = |run: &&Run| run.memory != Default::default();
    let runs: Vec<&Run> = context.all.runs.iter().filter(said).collect();
    if runs.is_empty() {
        return Vec::new();
    }
    let residual = |run: &Run, of: Option<u64>| {
        of.zip(run.memory.measured_bytes).map(|(said, measured)| said as f64 / measured.max(1) as f64 - 1.0)
    };
    let row = |run: &&Run| {
        let memory = run.memory;
        vec![
            run.name().into(),
            Cell::bytes(memory.predicted_bytes),
            Cell::bytes(memory.rehearsed_bytes),
            Cell::bytes(memory.measured_bytes),
            Cell::percent(residual(run, memory.predicted_bytes)),
            Cell::percent(residual(run, memory.rehearsed_bytes)),
        ]
    };
    let table = Table {
        name: "memory",
        title: "Peak GPU memory of a process".to_owned(),
        columns: vec!["run", "predicted", "rehearsed", "measured", "prediction off by", "rehearsal off by"],
        rows: runs.iter().map(row).collect(),
        note: "Reserved by the allocator. Where a run was started again with another batch, prediction and measurement are of the attempt that was measured.".to_owned(),
        is_long: runs.len() > 40,
    };
    let mut blocks = vec![Block::Heading("Memory".to_owned()), Block::Table(table)];
    blocks.extend(scatter_figure(&runs).map(|figure| Block::Figure(Box::new(figure))));
    blocks
}

fn scatter_figure(runs: &[&Run]) -> Option<Figure> {
    let points = |of: fn(&Run) -> Option<u64>| -> Vec<(f64, f64)> {
        runs.iter().filter_map(|run| Some((run.memory.measured_bytes? as f64 / GIB, of(run)? as f64 / GIB))).collect()
    };
    let (predicted, rehearsed) = (points(|run| run.memory.predicted_bytes), points(|run| run.memory.rehearsed_bytes));
    (!predicted.is_empty() || !rehearsed.is_empty()).then(|| Figure {
        name: "memory".to_owned(),
        title: "Memory said and measured".to_owned(),
        described:
            "A point a run; on the dashed line what was said is what was measured, below it too little was said."
                .to_owned(),
        x: "measured, GiB".to_owned(),
        y: "said, GiB".to_owned(),
        series: vec!["predicted".to_owned(), "rehearsed".to_owned()],
        marks: vec![
            Mark::Identity,
            Mark::Dots { series: 0, points: predicted, is_hollow: false },
            Mark::Dots { series: 1, points: rehearsed, is_hollow: true },
        ],
        ..Figure::default()
    })
}
