//! [`Bracket`]: the largest number of rows that is known to fit, and where to look next.

use super::Largest;

/// The most rows that are asked for.
pub(super) const MOST_ROWS: u64 = 1 << 20;

/// Rows, and the bytes they need if they can be at all.
pub(super) type Point = (u64, Option<u64>);

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
pub(super) struct Bracket {
    pub best: Largest,
    /// The size that fitted before it.
    below: Option<Point>,
    /// How many events more than that a simulation of the best has, and for how many rows more.
    growth: Option<(u64, u64)>,
    /// The smallest that does not fit, which may be no job at all.
    pub above: Option<Point>,
    /// Whether the next size is guessed, not halfway.
    guesses: bool,
    /// Sizes are multiples of this.
    pub grain: u64,
    /// The bytes that there are.
    usable: u64,
}

impl Bracket {
    pub const fn new(best: Largest, grain: u64, usable: u64) -> Self {
        Self { best, below: None, growth: None, above: None, guesses: true, grain, usable }
    }

    /// The same under a size that does not fit.
    pub fn below(self, above: Point) -> Self {
        Self { above: Some(above), ..self }
    }

    /// A larger size fits.
    pub fn rise_to(&mut self, best: Largest) {
        let before = peak_point(&self.best);
        let more = best.batch.micro_batch_size.saturating_sub(before.0);
        self.growth = Some((best.verdict.events.saturating_sub(self.best.verdict.events), more));
        // Through neighbours no line is straight: needs rise in steps.
        if best.batch.micro_batch_size - before.0 > self.grain || self.below.is_none() {
            self.below = Some(before);
        }
        self.best = best;
    }

    /// How many rows more than the best are simulated with so many events more, as far as that is known: twice as many events a row as
    /// from the size before it, or as all of its own.
    pub fn rows_of_events(&self, events: u64) -> u64 {
        let (grown, rows) = self.growth.unwrap_or((self.best.verdict.events, self.best.batch.micro_batch_size));
        let rows = u128::from(events) * u128::from(rows) / u128::from(grown.saturating_mul(2).max(1));
        u64::try_from(rows).unwrap_or(u64::MAX)
    }

    /// How many rows more may fit still.
    pub fn room_between(&self) -> u64 {
        let most = self.above.map_or(MOST_ROWS / self.grain * self.grain, |(rows, _)| rows - self.grain);
        most.saturating_sub(self.best.batch.micro_batch_size)
    }

    /// The size to try next, and whether it is a guess: what is known already by doubling, then by straight lines, and
    /// halving every other time between a size that fits and one that does not.
    pub fn next(&mut self, is_known: impl Fn(u64) -> bool) -> Option<(u64, bool)> {
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
