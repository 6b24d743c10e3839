//! [`Row`]: one variant of a job on a list of GPUs, the unit of a fit table and of a sweep.

use super::batch::Batch;
use super::fit::{Cell, GpuVerdict, NoVerdict};
use super::verdict_table::VerdictTable;
use crate::gpu::{Device, Gpu};
use crate::job::{JobError, JobSource, JobSpec, Origin, Override};
use crate::small_sort::SmallSort;

/// A variant of a job on every GPU of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the variant changes: keys and values.
    pub changes: Vec<(String, String)>,
    /// Its batch, on each rank.
    pub batch: Batch,
    /// Ranks with rows of their own.
    pub ranks: u64,
    /// A verdict for each GPU, or why there is no such job.
    pub cells: Vec<Cell>,
}

impl Row {
    /// Rows of an optimizer step over all ranks.
    pub const fn rows_per_step(&self) -> u64 {
        self.batch.effective().saturating_mul(self.ranks)
    }
}

/// A variant: what it changes, and how many rows a pass has if that is given.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// Keys with their values.
    pub changes: Vec<Override>,
    /// Rows of a pass; accumulation makes up for it.
    pub rows: Option<u64>,
}

/// What is answered at once: variants, one after another, on all GPUs of some devices, which share what they can.
#[derive(Clone, Debug)]
pub struct Part {
    variants: Vec<usize>,
    devices: Vec<Device>,
}

/// The parts of a table, to be answered in any order and by so many threads: a row is one part unless rows are too few to
/// keep the threads busy.
pub fn table_parts(known: &VerdictTable<'_>, variants: &[Variant], threads: usize) -> Vec<Part> {
    let parts_of_row = threads.div_ceil(variants.len().max(1)).max(1);
    let size = known.devices().len().div_ceil(parts_of_row).max(1);
    let of_variant = |variant| {
        let part = move |devices: &[Device]| Part { variants: vec![variant], devices: devices.to_vec() };
        known.devices().chunks(size).map(part)
    };
    (0..variants.len()).flat_map(of_variant).collect()
}

/// The same for a sweep that leaves out what surely does not fit: a part has all numbers of rows of one variant.
pub fn pruned_parts(known: &VerdictTable<'_>, variants: &[Variant]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut before: Option<&Variant> = None;
    for (at, variant) in variants.iter().enumerate() {
        match parts.last_mut().filter(|_| before.is_some_and(|before| before.changes == variant.changes)) {
            Some(part) => part.variants.push(at),
            None => parts.push(Part { variants: vec![at], devices: known.devices().to_vec() }),
        }
        before = Some(variant);
    }
    parts.iter_mut().for_each(|part| part.variants.small_sort_by_key(|at| variants[*at].rows));
    parts
}

/// Answers rows that are long before a table is split into parts, one after another: each part would simulate its own, and parts that
/// run at once would hold as many graphs in memory. Where every thread has rows of its own, the first one says how long they are.
pub fn answer_long_rows(known: &VerdictTable<'_>, variants: &[Variant], source: &JobSource, threads: usize) {
    for variant in variants {
        if let Ok(Varied::Batch(batch)) = varied_job(known, variant, source)
            && !known.learn_if_long(batch)
            && variants.len() >= threads
        {
            return;
        }
    }
}

/// Answers a part, a variant after the other. Where fewer rows in as many passes fit on none of the GPUs the others are
/// left out: more rows never need less.
pub fn answer_part(known: &VerdictTable<'_>, variants: &[Variant], part: &Part, source: &JobSource) -> Vec<Answer> {
    let mut too_large: Option<Batch> = None;
    let mut answers = Vec::with_capacity(part.variants.len());
    for at in part.variants.iter().copied() {
        let answered = answer_one(known, variants, (at, &part.devices), too_large, source);
        let fits = |(_, cell): &(usize, Cell)| cell.as_ref().map_or(true, GpuVerdict::may_fit);
        if !answered.cells.iter().any(fits) {
            too_large = Some(answered.batch);
        }
        answers.push(answered);
    }
    answers
}

fn answer_one(
    known: &VerdictTable<'_>,
    variants: &[Variant],
    (row, devices): (usize, &[Device]),
    too_large: Option<Batch>,
    source: &JobSource,
) -> Answer {
    let places: Vec<usize> = known.device_places(devices);
    let ranks = known.job().parallel.replicas();
    let all = |batch, why: NoVerdict| Answer { row, batch, ranks, cells: refuse_places(&places, &why) };
    let Some(variant) = variants.get(row) else {
        return all(Batch::of(known.job()), NoVerdict::Impossible("no such variant".to_owned()));
    };
    let is_larger = |batch: &Batch, than: &Batch| {
        let of = |batch: &Batch| (batch.gradient_accumulation_steps, batch.steps_per_generation);
        of(batch) == of(than) && batch.micro_batch_size >= than.micro_batch_size
    };
    match varied_job(known, variant, source) {
        Ok(varied) if too_large.is_some_and(|than| is_larger(&varied.batch(), &than)) => {
            all(varied.batch(), NoVerdict::Pruned)
        }
        Ok(Varied::Batch(batch)) => {
            known.learn_all(batch, devices);
            let cells = places.into_iter().map(|at| (at, known.verdict_on(batch, at)));
            Answer { row, batch, ranks, cells: cells.collect() }
        }
        Ok(Varied::Job(job)) => {
            let gpus: Vec<Gpu> = places.iter().map(|at| known.gpus()[*at].clone()).collect();
            let cells = known.verdicts_of(&job, &gpus).into_iter().map(|cell| cell.map_err(NoVerdict::from));
            Answer {
                row,
                batch: Batch::of(&job),
                ranks: job.parallel.replicas(),
                cells: places.into_iter().zip(cells).collect(),
            }
        }
        Err((batch, problem)) => all(batch, NoVerdict::Impossible(problem)),
    }
}

fn refuse_places(places: &[usize], why: &NoVerdict) -> Vec<(usize, Cell)> {
    places.iter().map(|at| (*at, Err(why.clone()))).collect()
}

/// The rows of a table from the answers to its [`table_parts`].
pub fn table_rows(known: &VerdictTable<'_>, variants: &[Variant], answers: Vec<Answer>) -> Vec<Row> {
    let empty = |variant: &Variant| Row {
        changes: variant.changes.iter().map(|set| (set.key.clone(), set.value.clone())).collect(),
        batch: Batch::of(known.job()),
        ranks: known.job().parallel.replicas(),
        cells: known.gpus().iter().map(|_| Err(NoVerdict::Impossible("not estimated".to_owned()))).collect(),
    };
    let mut rows: Vec<Row> = variants.iter().map(empty).collect();
    for Answer { row, batch, ranks, cells } in answers {
        (rows[row].batch, rows[row].ranks) = (batch, ranks);
        cells.into_iter().for_each(|(at, cell)| rows[row].cells[at] = cell);
    }
    rows
}

/// What [`answer_part`] found.
pub struct Answer {
    row: usize,
    batch: Batch,
    ranks: u64,
    /// By the GPU's place.
    cells: Vec<(usize, Cell)>,
}

/// What a variant is.
enum Varied {
    /// The job with another batch.
    Batch(Batch),
    /// The job in that variant.
    Job(Box<JobSpec>),
}

impl Varied {
    fn batch(&self) -> Batch {
        match self {
            Self::Batch(batch) => *batch,
            Self::Job(job) => Batch::of(job),
        }
    }
}

/// The job of a variant, or the nearest batch and why there is none.
fn varied_job(known: &VerdictTable<'_>, variant: &Variant, source: &JobSource) -> Result<Varied, (Batch, String)> {
    let base = known.job();
    let with = |changes: &[Override]| {
        let refused = |error: JobError| (Batch::of(base), error.problem);
        source.resolve(changes).map(|resolved| Box::new(resolved.job)).map_err(refused)
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
            let changes = [variant.changes.clone(), batch.overrides(&job, &Origin::Flag("--rows".to_owned()))].concat();
            with(&changes).map(Varied::Job).map_err(|(_, problem)| (batch, problem))
        }
    }
}
