//! The largest value of a key with which a job fits: every value that is stated was estimated.
//!
//! Reserved memory does not rise with every step of a key, so "largest" means, as for micro-batches: this value fits with room
//! to spare, and the next that the job can have does not.

use std::cell::Cell;
use std::ops::RangeInclusive;

use thiserror::Error;

use super::MOST_EVENTS;
use super::fit::GpuVerdict;
use crate::estimate::Fit;

/// Neighbours that are looked through for a value that the job can have.
const NEIGHBOURS: u64 = 256;
/// Multiples of what fits that are looked through: heads, groups and batches divide.
const MULTIPLES: RangeInclusive<u64> = 2..=64;

/// One of many searches may simulate no less than so much.
const LEAST_SEARCHED: u64 = MOST_EVENTS / 8;

/// What a search may still simulate.
pub struct Searching {
    left: Cell<u64>,
}

impl Searching {
    /// Of one of so many searches that are made for a question.
    pub fn one_of(searches: usize) -> Self {
        Self { left: Cell::new((MOST_EVENTS / (searches as u64).max(1)).max(LEAST_SEARCHED)) }
    }

    /// What `estimate` answers, as long as anything is left; what is begun is finished.
    ///
    /// # Errors
    /// Its own; or that a larger value was not tried.
    pub fn try_value(&self, estimate: impl FnOnce() -> Tried) -> Tried {
        if self.left.get() == 0 {
            return Err(Unanswered::NotTried);
        }
        let tried = estimate();
        let effort = tried.as_ref().map_or(0, |verdict| verdict.effort);
        self.left.set(self.left.get().saturating_sub(effort));
        tried
    }
}

/// Why nothing is known of a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unanswered {
    /// The job cannot have it.
    #[error("{0}")]
    Refused(String),
    /// The search ended before it.
    #[error(
        "larger values were not tried, and may fit: the search has simulated as much as it may; name one GPU (--gpus), or try one with --set"
    )]
    NotTried,
}

/// What a value came to.
pub type Tried = Result<GpuVerdict, Unanswered>;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Solution {
    /// The largest value that fits, and what it needs.
    pub best: Option<(u64, GpuVerdict)>,
    /// The next larger value that was tried, which does not fit; of a key that nothing fits, the least.
    pub next: Option<(u64, Tried)>,
}

/// A job by the values of a key.
pub struct Question<'a> {
    /// The values that the key takes.
    pub range: RangeInclusive<u64>,
    /// The job's own.
    pub own: u64,
    /// Why the job cannot have a value, found without an estimate.
    pub check: &'a dyn Fn(u64) -> Result<(), String>,
    /// The job with a value, estimated.
    pub verdict: &'a dyn Fn(u64) -> Tried,
}

/// The largest value that fits.
pub fn solve(question: &Question<'_>) -> Solution {
    let (least, most) = (*question.range.start(), *question.range.end());
    let own = question.own.clamp(least, most);
    let Some(first) = question.fitting_above(own, most).or_else(|| question.fitting_below(own, least)) else {
        let why = (question.check)(own).err().unwrap_or_default();
        return Solution { best: None, next: Some((own, Err(Unanswered::Refused(why)))) };
    };
    let tried = (question.verdict)(first);
    if let Some(low) = Fitting::of_trial(first, &tried) {
        return question.rise_from(low, most);
    }
    let Some(smallest) = question.fitting_above(least, first - 1) else {
        return Solution { best: None, next: Some((first, tried)) };
    };
    let of_smallest = (question.verdict)(smallest);
    match Fitting::of_trial(smallest, &of_smallest) {
        Some(low) => question.narrow_between(low, (first, tried)),
        None => Solution { best: None, next: Some((smallest, of_smallest)) },
    }
}

/// A value that fits.
#[derive(Clone)]
struct Fitting {
    value: u64,
    verdict: GpuVerdict,
}

impl Fitting {
    fn of_trial(value: u64, tried: &Tried) -> Option<Self> {
        let verdict = tried.as_ref().ok().filter(|verdict| verdict.fit == Fit::Fits)?.clone();
        Some(Self { value, verdict })
    }
}

impl Question<'_> {
    fn is_valid(&self, value: u64) -> bool {
        (self.check)(value).is_ok()
    }

    /// The first value from `from` on that the job can have.
    fn fitting_above(&self, from: u64, most: u64) -> Option<u64> {
        (from..=most).take(NEIGHBOURS as usize).find(|value| self.is_valid(*value))
    }

    /// The first value from `from` downwards.
    fn fitting_below(&self, from: u64, least: u64) -> Option<u64> {
        (least..=from).rev().take(NEIGHBOURS as usize).find(|value| self.is_valid(*value))
    }

    /// A value beyond `low` and below `high`, at `wanted` if the job can have it.
    fn fitting_between(&self, low: u64, high: u64, wanted: u64) -> Option<u64> {
        let (first, last) = (low.checked_add(1)?, high.checked_sub(1)?);
        if first > last {
            return None;
        }
        let wanted = wanted.clamp(first, last);
        let multiple = || {
            let mut multiples = MULTIPLES.map(|times| low.saturating_mul(times));
            multiples.find(|value| (first..=last).contains(value) && self.is_valid(*value))
        };
        self.fitting_above(wanted, last).or_else(|| self.fitting_below(wanted, first)).or_else(multiple)
    }

    /// From a value that fits upwards, by doubling.
    fn rise_from(&self, mut low: Fitting, most: u64) -> Solution {
        loop {
            if low.value >= most {
                return Solution { best: Some((low.value, low.verdict)), next: None };
            }
            let twice = low.value.saturating_mul(2).max(1).min(most);
            let end = low.value.saturating_mul(4).max(4).min(most);
            let Some(value) = self.fitting_above(twice, end).or_else(|| self.fitting_between(low.value, twice, twice))
            else {
                let beyond = low.value + 1;
                let why = (self.check)(beyond).err().unwrap_or_default();
                let next = Some((beyond, Err(Unanswered::Refused(why))));
                return Solution { best: Some((low.value, low.verdict)), next };
            };
            let tried = (self.verdict)(value);
            match Fitting::of_trial(value, &tried) {
                Some(higher) => low = higher,
                None => return self.narrow_between(low, (value, tried)),
            }
        }
    }

    /// Between a value that fits and one that does not: by straight lines and by halves, in turn.
    fn narrow_between(&self, mut low: Fitting, mut high: (u64, Tried)) -> Solution {
        let mut halves = false;
        loop {
            let middle = low.value + (high.0 - low.value) / 2;
            let wanted = if halves { middle } else { on_line(&low, &high).unwrap_or(middle) };
            halves = !halves;
            let Some(value) = self.fitting_between(low.value, high.0, wanted) else {
                return Solution { best: Some((low.value, low.verdict)), next: Some(high) };
            };
            let tried = (self.verdict)(value);
            match Fitting::of_trial(value, &tried) {
                Some(higher) => low = higher,
                None => high = (value, tried),
            }
        }
    }
}

/// Where a line between what the two need reaches what there is.
fn on_line(low: &Fitting, (high, tried): &(u64, Tried)) -> Option<u64> {
    let (from, to) = (low.verdict.safe_bytes, tried.as_ref().ok()?.safe_bytes);
    let room = u128::from(low.verdict.usable_bytes.checked_sub(from)?);
    let more = (room * u128::from(high - low.value)).checked_div(u128::from(to.checked_sub(from)?))?;
    Some(low.value + u64::try_from(more).ok()?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::trace::{Phase, PhaseKind};

    /// A verdict of `needed` bytes of 1000.
    fn verdict_at(needed: u64) -> GpuVerdict {
        GpuVerdict {
            fit: if needed <= 1000 { Fit::Fits } else { Fit::DoesNotFit },
            at_least: false,
            total_bytes: needed,
            safe_bytes: needed,
            usable_bytes: 1000,
            peak_allocated_bytes: needed,
            peak_reserved_bytes: needed,
            peak_phase: Phase { step: 1, kind: PhaseKind::Forward },
            lasting_bytes: 0,
            events: 1,
            effort: 1,
            replayed: 0,
            room: Vec::new(),
        }
    }

    fn solved(
        own: u64,
        range: RangeInclusive<u64>,
        valid: impl Fn(u64) -> bool,
        needs: impl Fn(u64) -> u64,
    ) -> (Solution, usize) {
        let asked = RefCell::new(0);
        let check = |value: u64| if valid(value) { Ok(()) } else { Err(format!("{value} does not divide")) };
        let verdict = |value: u64| {
            *asked.borrow_mut() += 1;
            check(value).map(|()| verdict_at(needs(value))).map_err(Unanswered::Refused)
        };
        let solution = solve(&Question { range, own, check: &check, verdict: &verdict });
        (solution, asked.into_inner())
    }

    #[test]
    fn the_next_value_does_not_fit() {
        for (own, rate, fixed) in [(1, 3, 10), (500, 3, 10), (64, 1, 0), (7, 999, 0), (2, 500, 0), (1000, 7, 300)] {
            let (solution, asked) = solved(own, 1..=1 << 20, |_| true, |value| fixed + rate * value);
            let (best, _) = solution.best.unwrap();
            assert_eq!(best, (1000 - fixed) / rate, "own {own}, rate {rate}");
            assert_eq!(solution.next.unwrap().0, best + 1);
            assert!(asked < 30, "{asked}");
        }
    }

    #[test]
    fn only_values_that_divide_are_taken() {
        // Groups of a batch of 96: its divisors.
        let (solution, _) = solved(8, 2..=1 << 20, |value| 96 % value == 0, |value| 20 * value);
        assert_eq!((solution.best.unwrap().0, solution.next.unwrap().0), (48, 96));
        let (solution, _) = solved(8, 2..=1 << 20, |value| 96 % value == 0, |value| value);
        assert_eq!(solution.best.unwrap().0, 96);
        assert_eq!(solution.next.unwrap(), (97, Err(Unanswered::Refused("97 does not divide".to_owned()))));
        let (solution, _) = solved(512, 1..=1 << 20, |value| value <= 1024, |value| value / 2);
        assert_eq!((solution.best.unwrap().0, solution.next.unwrap().0), (1024, 1025));
    }

    #[test]
    fn what_nothing_fits_and_what_has_no_end_is_said() {
        let (solution, _) = solved(100, 1..=1000, |_| true, |_| 2000);
        assert_eq!((solution.best, solution.next.map(|(value, _)| value)), (None, Some(1)));
        let (solution, asked) = solved(1, 1..=1 << 20, |_| true, |_| 5);
        assert_eq!((solution.best.unwrap().0, solution.next), (1 << 20, None));
        assert!(asked < 30, "{asked}");
        let (solution, _) = solved(3, 1..=5, |_| false, |_| 5);
        assert!(solution.best.is_none() && solution.next.unwrap().1.is_err());
    }

    #[test]
    fn a_need_that_does_not_rise_everywhere_still_ends_at_an_edge() {
        let needs = |value: u64| 3 * value + if value % 10 < 5 { 100 } else { 0 };
        let (solution, _) = solved(1, 1..=1 << 20, |_| true, needs);
        let ((best, _), (next, _)) = (solution.best.unwrap(), solution.next.unwrap());
        assert!(needs(best) <= 1000 && needs(next) > 1000 && next == best + 1, "{best} {next}");
    }

    #[test]
    fn a_search_that_takes_too_long_ends_with_what_fits() {
        let searching = Searching::one_of(1);
        let long = |value| GpuVerdict { effort: MOST_EVENTS / 3, ..verdict_at(value) };
        let verdict = |value| searching.try_value(|| Ok(long(value)));
        let solution = solve(&Question { range: 1..=1 << 20, own: 1, check: &|_| Ok(()), verdict: &verdict });
        let (best, next) = (solution.best.unwrap().0, solution.next.unwrap());
        assert_eq!((best, next.0), (4, 5));
        assert_eq!(next.1, Err(Unanswered::NotTried));
    }
}
