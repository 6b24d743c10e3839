//! [`Row`]: one variant of a job on a list of GPUs, the unit of a fit table and of a sweep.

use super::Resolve;
use super::batch::Batch;
use super::fit::{Judgement, judge_all};
use super::judgements::Judgements;
use crate::gpu::{Device, Gpu};
use crate::spec::{JobSpec, Override, SpecError};

/// A variant of a job on every GPU of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the variant changes: keys and values.
    pub changes: Vec<(String, String)>,
    /// Its batch.
    pub batch: Batch,
    /// A judgement for each GPU, or why there is no such job.
    pub cells: Vec<Result<Judgement, String>>,
}

/// A variant: what it changes, and how many rows a pass has if that is given.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// Keys with their values.
    pub changes: Vec<Override>,
    /// Rows of a pass; accumulation makes up for it.
    pub rows: Option<u64>,
}

/// The share of a row that one simulation answers: a variant on all GPUs of a device.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    variant: usize,
    device: Device,
}

/// The parts of a table, to be answered in any order and by several threads.
pub fn parts(known: &Judgements<'_>, variants: &[Variant]) -> Vec<Part> {
    let of_variant = |variant| known.devices().iter().map(move |device| Part { variant, device: *device });
    (0..variants.len()).flat_map(of_variant).collect()
}

/// Answers a part: the batch, and a cell for each GPU of its device.
pub fn answer(known: &Judgements<'_>, variants: &[Variant], part: Part, resolve: &Resolve<'_>) -> Answer {
    let Some(variant) = variants.get(part.variant) else {
        return Answer { batch: Batch::of(known.job()), cells: Err("no such variant".to_owned()) };
    };
    match job(known, variant, resolve) {
        Ok(Varied::Batch(batch)) => {
            let cells = known.learn(batch, part.device).as_ref().clone().map_err(|error| error.problem);
            Answer { batch, cells }
        }
        Ok(Varied::Job(job)) => {
            let gpus: Vec<Gpu> = known.gpus().iter().filter(|gpu| gpu.device() == part.device).cloned().collect();
            let cells = judge_all(&job, &gpus).into_iter().map(|cell| cell.map_err(|error| error.to_string()));
            Answer { batch: Batch::of(&job), cells: Ok(cells.collect()) }
        }
        Err((batch, problem)) => Answer { batch, cells: Err(problem) },
    }
}

/// The rows of a table from the answers to its [`parts`], in their order.
pub fn rows(known: &Judgements<'_>, variants: &[Variant], answers: Vec<Answer>) -> Vec<Row> {
    let mut answers = answers.into_iter();
    let row = |variant: &Variant| row(known, variant, answers.by_ref().take(known.devices().len()).collect());
    variants.iter().map(row).collect()
}

/// What [`answer`] found.
pub struct Answer {
    batch: Batch,
    cells: Result<Vec<Result<Judgement, String>>, String>,
}

/// What a variant is.
enum Varied {
    /// The job with another batch.
    Batch(Batch),
    /// Another job.
    Job(Box<JobSpec>),
}

/// The job of a variant, or the nearest batch and why there is none.
fn job(known: &Judgements<'_>, variant: &Variant, resolve: &Resolve<'_>) -> Result<Varied, (Batch, String)> {
    let base = known.job();
    let with = |changes: &[Override]| {
        let refused = |error: SpecError| (Batch::of(base), error.problem);
        resolve(changes).map(|resolved| Box::new(resolved.job)).map_err(refused)
    };
    let changed = if variant.changes.is_empty() { None } else { Some(with(&variant.changes)?) };
    let of = changed.as_deref().unwrap_or(base);
    let batch = match variant.rows {
        None => Batch::of(of),
        Some(rows) => Batch::with_rows(of, rows)
            .ok_or_else(|| (Batch::of(of), "a node's rows are its questions times `num_generations`".to_owned()))?,
    };
    match changed {
        None => Ok(Varied::Batch(batch)),
        Some(job) if variant.rows.is_none() => Ok(Varied::Job(job)),
        Some(job) => {
            let changes = [variant.changes.clone(), batch.overrides(&job, "--rows")].concat();
            with(&changes).map(Varied::Job).map_err(|(_, problem)| (batch, problem))
        }
    }
}

fn row(known: &Judgements<'_>, variant: &Variant, answers: Vec<Answer>) -> Row {
    let changes = variant.changes.iter().map(|set| (set.key.clone(), set.value.clone())).collect();
    let batch = answers.first().map_or_else(|| Batch::of(known.job()), |answer| answer.batch);
    let mut cells: Vec<Result<Judgement, String>> =
        known.gpus().iter().map(|_| Err("not estimated".to_owned())).collect();
    for (device, answer) in known.devices().iter().zip(answers) {
        let places = known.gpus().iter().enumerate().filter(|(_, gpu)| gpu.device() == *device).map(|(at, _)| at);
        match answer.cells {
            Ok(found) => places.zip(found).for_each(|(at, cell)| cells[at] = cell),
            Err(problem) => places.for_each(|at| cells[at] = Err(problem.clone())),
        }
    }
    Row { changes, batch, cells }
}
