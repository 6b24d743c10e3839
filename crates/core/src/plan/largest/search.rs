//! One GPU's search for the largest micro-batch that fits, over what is known: it ends with an answer, or with the batch that must be
//! estimated before it can go on.

use std::cell::OnceCell;

use super::bracket::{Bracket, MOST_ROWS};
use super::{Largest, Wanted};
use crate::estimate::{Fit, shown_bound};
use crate::job::Passes;
use crate::plan::MOST_EVENTS;
use crate::plan::batch::{Batch, passes_of_rank};
use crate::plan::fit::{Cell, GpuVerdict, NoVerdict};
use crate::plan::verdict_table::{REFUSED, VerdictTable};

/// What all steps of a job need more than its first ones is mostly less than what one of so many rows needs.
const CLOSE: u64 = 1 << 10;

/// What a search comes to, or why it stops there.
type Asked<'t, 'a, T> = Result<T, Halt<'t, 'a>>;

pub(super) enum Halt<'t, 'a> {
    /// This must be estimated first.
    Wanted(Wanted<'t, 'a>),
    /// What must be known next takes too long to simulate.
    TooLong,
}

/// A job of so many events is not simulated with more passes, whatever is left: several of them are recorded.
const LONG: u64 = MOST_EVENTS / 8;

pub(super) struct Search<'s, 't, 'a> {
    pub known: &'t VerdictTable<'a>,
    pub index: usize,
    /// So many events may be simulated for it still.
    pub left: u64,
    /// The numbers that divide the rows of a step, from the largest: those of all searches.
    pub divisors: &'s OnceCell<Vec<u64>>,
}

impl<'t, 'a> Search<'_, 't, 'a> {
    /// The largest; of a longer job first by its first steps, for what does not fit in those does not fit in all.
    pub fn run(&self) -> Asked<'t, 'a, Option<Largest>> {
        let Some(first) = self.known.of_first_steps() else { return self.search_largest() };
        let Some(bound) = (Search { known: first, ..*self }).search_largest()? else { return Ok(None) };
        let rows = bound.batch.micro_batch_size;
        if let Some(own) = self.own_if_spent(rows)? {
            return Ok(Some(own));
        }
        match self.fits_with(rows)? {
            Some(found) => Ok(Some(Largest { more_may_fit: bound.more_may_fit, ..found })),
            None => self.search_below(rows),
        }
    }

    /// The step's own rows in one pass, where those fit and all steps of so many `rows` are more than may still be simulated.
    fn own_if_spent(&self, rows: u64) -> Asked<'t, 'a, Option<Largest>> {
        let (_, first) = self.first_rows();
        if self.is_known(rows) || !self.is_known(first) {
            return Ok(None);
        }
        let own = self.fits_with(first)?.filter(|own| own.verdict.effort > self.left);
        Ok(own.map(Largest::or_more))
    }

    /// From `bound` rows, which do not fit, downwards: what the first steps need and what all do are a few blocks apart.
    fn search_below(&self, bound: u64) -> Asked<'t, 'a, Option<Largest>> {
        let (grain, first) = self.first_rows();
        let close = bound.saturating_sub((bound / CLOSE).max(1).next_multiple_of(grain));
        for rows in [close, first] {
            if (first..bound).contains(&rows)
                && let Some(found) = self.fits_with(rows)?
            {
                let above = (bound, self.verdict_with(bound)?.and_then(|verdict| shown_bound(verdict.safe_bytes)));
                let usable = self.known.gpus()[self.index].usable_bytes;
                return self.search_above(Bracket::new(found, grain, usable).below(above)).map(Some);
            }
        }
        self.search_largest()
    }

    /// Sizes are multiples of the first of these; the search begins at the second, which need no accumulation.
    fn first_rows(&self) -> (u64, u64) {
        let job = self.known.job();
        let (grain, whole) = match passes_of_rank(job) {
            Passes::WholeGroups { group, .. } => (group.max(1), Batch::of(job).effective()),
            // Rows are the effective batch: the search begins at one.
            Passes::One(_) => (1, 1),
            Passes::Accumulated | Passes::Counted(_) => (1, Batch::of(job).effective()),
        };
        (grain, whole.max(1).next_multiple_of(grain))
    }

    fn search_largest(&self) -> Asked<'t, 'a, Option<Largest>> {
        let usable = self.known.gpus()[self.index].usable_bytes;
        let (grain, first) = self.first_rows();
        if let Some(found) = self.fits_with(first)? {
            return self.search_above(Bracket::new(found, grain, usable)).map(Some);
        }
        let Some(batch) = Batch::with_rows(self.known.job(), first) else { return self.search_divisors(first, 0) };
        match self.cell_of(batch)? {
            Ok(verdict) if !verdict.leaves_room() => Ok(None),
            Ok(verdict) => self.search_divisors(first, verdict.effort),
            Err(NoVerdict::TooLarge) => self.search_divisors(first, REFUSED),
            Err(_) => self.search_divisors(first, 0),
        }
    }

    /// The largest of those that divide `first`, of which a simulation has so many events.
    fn search_divisors(&self, first: u64, events: u64) -> Asked<'t, 'a, Option<Largest>> {
        if matches!(passes_of_rank(self.known.job()), Passes::One(_)) {
            return Ok(None);
        }
        let all = || (1..first.min(MOST_ROWS + 1)).rev().filter(|rows| first.is_multiple_of(*rows)).collect();
        let divisors = self.divisors.get_or_init(all);
        // More passes are no fewer events. How many those of a job have that cannot be is not known.
        if events > self.left || self.left == 0 {
            let Some(fewest) = divisors.last() else { return Ok(None) };
            if events > LONG && !self.is_known(*fewest) {
                return Err(Halt::TooLong);
            }
            return Ok(self.fits_with(*fewest)?.map(Largest::or_more));
        }
        for rows in &divisors[self.first_that_may_fit(divisors)?..] {
            if let Some(found) = self.fits_with(*rows)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The batch of `rows`, if it fits.
    pub fn fits_with(&self, rows: u64) -> Asked<'t, 'a, Option<Largest>> {
        let verdict = self.verdict_with(rows)?;
        let found = verdict.zip(Batch::with_rows(self.known.job(), rows));
        let found = found.filter(|(verdict, _)| verdict.fit == Fit::Fits);
        Ok(found.map(|(verdict, batch)| Largest { batch, verdict, more_may_fit: false }))
    }

    fn verdict_with(&self, rows: u64) -> Asked<'t, 'a, Option<GpuVerdict>> {
        let Some(batch) = Batch::with_rows(self.known.job(), rows) else { return Ok(None) };
        self.verdict_of(batch)
    }

    /// `None` where there is no such job.
    fn verdict_of(&self, batch: Batch) -> Asked<'t, 'a, Option<GpuVerdict>> {
        Ok(self.cell_of(batch)?.ok())
    }

    fn cell_of(&self, batch: Batch) -> Asked<'t, 'a, Cell> {
        if !self.known.is_known(batch, self.index) {
            return Err(Halt::Wanted(Wanted::new(self.known, batch, self.index)));
        }
        match self.known.verdict_on(batch, self.index) {
            // Its table had no time for this GPU: that is no word on whether it fits.
            Err(NoVerdict::NotReplayed(_)) => Err(Halt::TooLong),
            cell => Ok(cell),
        }
    }

    /// The place of the first of `divisors`, which fall, that fits in as few passes as can be: where those do not fit, more
    /// passes of as many rows, which keep gradients while they run and complete no smaller batch, do not either.
    fn first_that_may_fit(&self, divisors: &[u64]) -> Asked<'t, 'a, usize> {
        // There may be no such job of so few passes.
        if self.fewest_passes_fit(1)?.is_none() {
            return Ok(0);
        }
        let (mut low, mut high) = (0, divisors.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.fewest_passes_fit(divisors[middle])? {
                Some(true) => high = middle,
                _ => low = middle + 1,
            }
        }
        Ok(low)
    }

    fn fewest_passes_fit(&self, rows: u64) -> Asked<'t, 'a, Option<bool>> {
        let Some(few) = Batch::in_fewest_passes(self.known.job(), rows) else { return Ok(None) };
        Ok(match self.cell_of(few)? {
            Ok(verdict) => Some(verdict.fit == Fit::Fits),
            Err(NoVerdict::TooLarge) => Some(false),
            Err(_) => None,
        })
    }

    /// From a size that fits upwards.
    fn search_above(&self, mut bracket: Bracket) -> Asked<'t, 'a, Largest> {
        match self.rise_in(&mut bracket) {
            Ok(is_over) => Ok(if is_over { bracket.best } else { bracket.best.or_more() }),
            // What fits is known, whatever else is not.
            Err(Halt::TooLong) => Ok(bracket.best.or_more()),
            Err(wanted) => Err(wanted),
        }
    }

    /// Whether it came to a size beyond which none fits.
    fn rise_in(&self, bracket: &mut Bracket) -> Asked<'t, 'a, bool> {
        while let Some((rows, is_guess)) = bracket.next(|rows| self.is_known(rows)) {
            let Some(rows) = self.affordable_rows(bracket, rows) else { return Ok(false) };
            // A guess that fits is often the last size that does.
            if self.narrow_at(bracket, rows)? && is_guess && bracket.room_between() > 0 {
                let next = rows + bracket.grain;
                if self.affordable_rows(bracket, next) == Some(next) {
                    self.narrow_at(bracket, next)?;
                }
            }
        }
        Ok(true)
    }

    /// As many of `rows` as may still be simulated; `None` where not one more may.
    fn affordable_rows(&self, bracket: &Bracket, rows: u64) -> Option<u64> {
        if self.is_known(rows) {
            return Some(rows);
        }
        let events = self.left.checked_sub(bracket.best.verdict.effort)?;
        let more = bracket.rows_of_events(events) / bracket.grain * bracket.grain;
        (more > 0).then(|| rows.min(bracket.best.batch.micro_batch_size.saturating_add(more)))
    }

    /// Whether so many rows fit.
    fn narrow_at(&self, bracket: &mut Bracket, rows: u64) -> Asked<'t, 'a, bool> {
        if let Some(found) = self.fits_with(rows)? {
            bracket.rise_to(found);
            return Ok(true);
        }
        bracket.above = Some((rows, self.verdict_with(rows)?.and_then(|verdict| shown_bound(verdict.safe_bytes))));
        Ok(false)
    }

    fn is_known(&self, rows: u64) -> bool {
        let batch = Batch::with_rows(self.known.job(), rows);
        batch.is_some_and(|batch| self.known.is_known(batch, self.index))
    }
}
