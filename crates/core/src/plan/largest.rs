//! The largest micro-batch that fits: every size that is stated was estimated.
//!
//! Passes of other sizes are compared only where the accumulation is the same: two passes of four rows keep gradients while
//! they run, and can need more than one of eight.

use super::batch::{Batch, passes_of_rank};
use super::fit::GpuVerdict;
use super::verdict_table::VerdictTable;
use crate::estimate::Fit;
use crate::gpu::Device;
use crate::job::Passes;

/// The most rows that are asked for.
const MOST_ROWS: u64 = 1 << 20;

/// The largest size that was estimated to fit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Largest {
    /// The largest that surely fits.
    pub batch: Batch,
    /// What it needs.
    pub verdict: GpuVerdict,
}

/// The largest micro-batch that fits with room to spare on the GPU at `index`: of those that make no accumulation needed by
/// bisection, else of those that leave the effective batch what it is, the largest first. `None` when not even one row
/// fits, or rows are not the job's to choose. Sizes that cannot be (past a model's positions, say) do not fit.
pub fn largest_that_fits(known: &VerdictTable<'_>, index: usize) -> Option<Largest> {
    // What does not fit in the first steps does not fit in all.
    let bound = known.of_first_steps().and_then(|first| search_largest(first, index));
    let whole = Search { known, index, together: Vec::new() };
    let found = bound.and_then(|bound| whole.fits_with(bound.batch.micro_batch_size));
    found.or_else(|| search_largest(known, index))
}

fn search_largest(known: &VerdictTable<'_>, index: usize) -> Option<Largest> {
    let (job, usable) = (known.job(), known.gpus()[index].usable_bytes);
    let passes = passes_of_rank(job);
    let (grain, whole) = match passes {
        Passes::WholeGroups { group, .. } => (group.max(1), Batch::of(job).effective()),
        // Rows are the effective batch: the search begins at one.
        Passes::One(_) => (1, 1),
        Passes::Accumulated | Passes::Counted(_) => (1, Batch::of(job).effective()),
    };
    let search = Search { known, index, together: Vec::new() };
    let first = whole.max(1).next_multiple_of(grain);
    match search.fits_with(first) {
        Some(found) => Some(search.search_above(Bracket::new(found, grain, usable))),
        None if search.verdict_with(first).is_some_and(|verdict| !verdict.leaves_room()) => None,
        None => {
            let search = Search { together: known.devices_not_fit_for(Batch::with_rows(job, first)?), ..search };
            let divisors: Vec<u64> = match passes {
                Passes::One(_) => Vec::new(),
                _ => (1..first.min(MOST_ROWS + 1)).rev().filter(|rows| first.is_multiple_of(*rows)).collect(),
            };
            divisors[search.first_that_may_fit(&divisors)..].iter().find_map(|rows| search.fits_with(*rows))
        }
    }
}

/// Rows, and the bytes they need if they can be at all.
type Point = (u64, Option<u64>);

/// The rows at which a line through two points reaches `usable` bytes, if it rises to there from the first.
fn on_line(from: Point, other: Point, usable: u64) -> Option<u64> {
    let (rows, needed) = (from.0.abs_diff(other.0), from.1?.abs_diff(other.1?));
    let is_rising = (other.0 > from.0) == (other.1? > from.1?);
    let room = u128::from(usable.checked_sub(from.1?)?);
    let more = (room * u128::from(rows)).checked_div(u128::from(needed)).filter(|_| is_rising)?;
    u64::try_from(more).ok()?.checked_add(from.0)
}

fn peak_point(largest: &Largest) -> Point {
    (largest.batch.micro_batch_size, Some(largest.verdict.safe_bytes))
}

/// The largest size that is known to fit, and what lies around it.
struct Bracket {
    best: Largest,
    /// The size that fitted before it.
    below: Option<Point>,
    /// The smallest that does not fit, which may be no job at all.
    above: Option<Point>,
    /// Whether the next size is guessed, not halfway.
    guesses: bool,
    /// Sizes are multiples of this.
    grain: u64,
    /// The bytes that there are.
    usable: u64,
}

impl Bracket {
    const fn new(best: Largest, grain: u64, usable: u64) -> Self {
        Self { best, below: None, above: None, guesses: true, grain, usable }
    }

    /// A larger size fits.
    fn rise_to(&mut self, best: Largest) {
        let before = peak_point(&self.best);
        // Through neighbours no line is straight: needs rise in steps.
        if best.batch.micro_batch_size - before.0 > self.grain || self.below.is_none() {
            self.below = Some(before);
        }
        self.best = best;
    }

    /// How many rows more may fit still.
    fn room_between(&self) -> u64 {
        let most = self.above.map_or(MOST_ROWS / self.grain * self.grain, |(rows, _)| rows - self.grain);
        most.saturating_sub(self.best.batch.micro_batch_size)
    }

    /// The size to try next, and whether it is a guess: what is known already by doubling, then by straight lines, and
    /// halving every other time between a size that fits and one that does not.
    fn next(&mut self, is_known: impl Fn(u64) -> bool) -> Option<(u64, bool)> {
        let (low, room, grain) = (peak_point(&self.best), self.room_between(), self.grain);
        let other = self.above.or(self.below).filter(|_| self.guesses);
        let line = other.and_then(|other| on_line(low, other, self.usable));
        let doubles = self.above.is_none() && (line.is_none() || is_known(low.0 * 2));
        let more = match line {
            _ if doubles => low.0,
            Some(rows) => rows - low.0,
            None => (room + grain) / 2,
        };
        self.guesses = self.above.is_none() || !self.guesses;
        let more = (more / grain * grain).clamp(grain, room.max(grain));
        (room >= grain).then_some((low.0 + more, line.is_some() && !doubles))
    }
}

struct Search<'t, 'a> {
    known: &'t VerdictTable<'a>,
    index: usize,
    /// Devices for which the same will be asked: they share simulations.
    together: Vec<Device>,
}

impl Search<'_, '_> {
    /// The batch of `rows`, if it fits.
    fn fits_with(&self, rows: u64) -> Option<Largest> {
        let verdict = self.verdict_with(rows)?;
        let batch = Batch::with_rows(self.known.job(), rows)?;
        (verdict.fit == Fit::Fits).then_some(Largest { batch, verdict })
    }

    fn verdict_with(&self, rows: u64) -> Option<GpuVerdict> {
        let batch = Batch::with_rows(self.known.job(), rows)?;
        self.known.learn_all(batch, &self.together);
        self.known.verdict_on(batch, self.index).ok()
    }

    /// The place of the first of `divisors`, which fall, that fits in as few passes as can be: where those do not fit, more
    /// passes of as many rows, which keep gradients while they run and complete no smaller batch, do not either.
    fn first_that_may_fit(&self, divisors: &[u64]) -> usize {
        match self.fewest_passes_fit(1) {
            // There may be no such job of so few passes.
            Err(_) => 0,
            Ok(_) => divisors.partition_point(|rows| !self.fewest_passes_fit(*rows).unwrap_or(false)),
        }
    }

    fn fewest_passes_fit(&self, rows: u64) -> Result<bool, String> {
        let job = self.known.job();
        let few = Batch::in_fewest_passes(job, rows).ok_or_else(|| "passes are not accumulated".to_owned())?;
        self.known.learn_all(few, &self.together);
        self.known.verdict_on(few, self.index).map(|verdict| verdict.fit == Fit::Fits)
    }

    /// From a size that fits upwards.
    fn search_above(&self, mut bracket: Bracket) -> Largest {
        while let Some((rows, is_guess)) = bracket.next(|rows| self.is_known(rows)) {
            // A guess that fits is often the last size that does.
            if self.narrow_at(&mut bracket, rows) && is_guess && bracket.room_between() > 0 {
                let next = rows + bracket.grain;
                self.narrow_at(&mut bracket, next);
            }
        }
        bracket.best
    }

    /// Whether so many rows fit.
    fn narrow_at(&self, bracket: &mut Bracket, rows: u64) -> bool {
        let batch = Batch::with_rows(self.known.job(), rows);
        match (self.verdict_with(rows), batch) {
            (Some(verdict), Some(batch)) if verdict.fit == Fit::Fits => {
                bracket.rise_to(Largest { batch, verdict });
                true
            }
            (verdict, _) => {
                bracket.above = Some((rows, verdict.map(|verdict| verdict.safe_bytes)));
                false
            }
        }
    }

    fn is_known(&self, rows: u64) -> bool {
        let batch = Batch::with_rows(self.known.job(), rows);
        batch.is_some_and(|batch| self.known.is_known(batch, self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;
    use crate::job::JobSource;

    #[test]
    fn the_next_larger_size_does_not_fit() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("framework", "loop");
        let source = source.set("micro_batch_size", 4).set("seq_len", 256);
        let gpus = ["3GiB,sm_90", "4GiB,sm_90", "12GiB,sm_80", "1GiB,sm_90"].map(|gpu| Gpu::parse(gpu).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let known = VerdictTable::new(&job, &gpus, &source);
        let mut sizes = Vec::new();
        for index in 0..gpus.len() {
            let Some(found) = largest_that_fits(&known, index) else { continue };
            let rows = found.batch.micro_batch_size;
            sizes.push(rows);
            let next = known.verdict_on(Batch::with_rows(&job, rows + 1).unwrap(), index).unwrap();
            assert_ne!(next.fit, Fit::Fits, "{rows} on {index}");
            assert_eq!(found.verdict.fit, Fit::Fits);
        }
        assert!(sizes.len() >= 3 && sizes[0] < sizes[1], "{sizes:?}");
    }

    #[test]
    fn the_largest_divisor_that_fits_is_found_without_trying_all() {
        let small = JobSource::model("gpt2").set("model.n_layer", 2).set("seq_len", 256).set("micro_batch_size", 60);
        let gpus = [600, 1024, 1500, 2048, 3072, 4096].map(|size| Gpu::parse(&format!("{size}MiB,sm_90")).unwrap());
        let changes = [("framework", "loop"), ("framework", "trainer"), ("gradient_checkpointing", "true")];
        for (key, value) in changes {
            for passes in [2_u64, 4] {
                let source = small.clone().set("gradient_accumulation_steps", passes).set(key, value);
                let job = source.resolve(&[]).unwrap().job;
                let known = VerdictTable::new(&job, &gpus, &source);
                for index in 0..gpus.len() {
                    let search = Search { known: &known, index, together: Vec::new() };
                    let tried = (1..=60 * passes).rev().filter(|rows| (60 * passes).is_multiple_of(*rows));
                    let largest = tried.into_iter().find_map(|rows| search.fits_with(rows));
                    let found = largest_that_fits(&known, index);
                    if largest.as_ref().is_none_or(|largest| largest.batch.gradient_accumulation_steps > 1) {
                        assert_eq!(found, largest, "{key} = {value}, {passes} passes on {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_passes_of_whole_groups_are_found_without_trying_all() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("task", "grpo").set("completion_len", 32);
        let source = source.set("prompt_len", 64).set("micro_batch_size", 40).set("gradient_accumulation_steps", 2);
        let gpus = [1024, 2048, 2560, 3072, 4096].map(|size| Gpu::parse(&format!("{size}MiB,sm_90")).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let known = VerdictTable::new(&job, &gpus, &source);
        let mut passes = Vec::new();
        for index in 0..gpus.len() {
            let found = largest_that_fits(&known, index);
            let all = VerdictTable::new(&job, &gpus, &source);
            let search = Search { known: &all, index, together: Vec::new() };
            let tried = (1..=80).rev().filter(|rows| 80_u64.is_multiple_of(*rows));
            let largest = tried.into_iter().find_map(|rows| search.fits_with(rows));
            passes.push(largest.as_ref().map(|largest| largest.batch.gradient_accumulation_steps));
            if passes[index] != Some(1) {
                assert_eq!(found, largest, "on {index}");
            }
        }
        assert!(passes.contains(&None) && passes.iter().flatten().any(|passes| *passes > 1), "{passes:?}");
    }

    #[test]
    fn a_long_job_is_searched_by_its_first_steps() {
        let source = JobSource::model("gpt2").set("model.n_layer", 2).set("framework", "loop").set("steps", 40);
        let source = source.set("micro_batch_size", 2).set("seq_len", 128);
        let gpus = ["1GiB,sm_90", "2GiB,sm_80", "3GiB,sm_90"].map(|gpu| Gpu::parse(gpu).unwrap());
        let job = source.resolve(&[]).unwrap().job;
        let known = VerdictTable::new(&job, &gpus, &source);
        assert!(known.of_first_steps().is_some());
        let mut sizes = Vec::new();
        for index in 0..gpus.len() {
            let found = largest_that_fits(&known, index);
            assert_eq!(found, search_largest(&VerdictTable::new(&job, &gpus, &source), index), "on {index}");
            sizes.extend(found.map(|found| found.batch.micro_batch_size));
        }
        assert!(sizes.len() >= 2 && sizes.iter().any(|rows| *rows > 2), "{sizes:?}");
    }

    #[test]
    fn billions_of_rows_are_searched_by_the_divisors_that_are_asked_for() {
        let source = JobSource::model("gpt2").set("model.n_layer", 1).set("framework", "loop").set("seq_len", 16);
        let source = source.set("micro_batch_size", 1).set("gradient_accumulation_steps", u32::MAX);
        let gpus = [Gpu::parse("4GiB,sm_90").unwrap()];
        let job = source.resolve(&[]).unwrap().job;
        let found = largest_that_fits(&VerdictTable::new(&job, &gpus, &source), 0).unwrap();
        assert_eq!(found.batch.effective(), u64::from(u32::MAX));
        assert!(found.batch.micro_batch_size > 1);
    }
}
