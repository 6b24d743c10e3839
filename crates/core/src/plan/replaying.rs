//! [`Replaying`]: how much of a job's trace is replayed for GPUs of many kinds, so that a table ends whatever the job is.

use std::cell::Cell;

use crate::estimate::{EstimateError, SimulatedJob};

/// A simulation takes as long as so many replays.
pub(super) const SIMULATION: u64 = 2;

/// What may still be simulated and replayed for a job on GPUs of several kinds.
pub(super) struct Replaying {
    most: u64,
    kinds: u64,
    left: Cell<u64>,
    /// Events of the longest simulation so far.
    longest: Cell<u64>,
    simulations: Cell<u64>,
}

impl Replaying {
    pub const fn new(most: u64, kinds: usize) -> Self {
        Self { most, kinds: kinds as u64, left: Cell::new(most), longest: Cell::new(0), simulations: Cell::new(0) }
    }

    /// The same for a job that was simulated before, of which each simulation has so many events and took as long as so many replays.
    pub fn after(self, events: u64, replays: u64) -> Self {
        self.longest.set(events);
        self.take_off(replays);
        self
    }

    /// Whether replays for all kinds are more than may be. One kind alone is always answered.
    pub const fn is_long(&self, events: u64) -> bool {
        self.kinds > 1 && events.saturating_mul(self.kinds) > self.most
    }

    /// Whether a verdict takes a replay, and all of them are more than may be.
    pub fn is_needed(&self, simulated: &SimulatedJob<'_>) -> bool {
        let events = simulated.events();
        self.longest.set(events.max(self.longest.get()));
        self.is_long(events) && !simulated.is_replayed()
    }

    /// Takes a replay off what may be.
    pub fn begin(&self, simulated: &SimulatedJob<'_>) -> Result<(), EstimateError> {
        if self.is_needed(simulated) {
            let events = simulated.events();
            let left = self.left.get().checked_sub(events).ok_or_else(|| self.refuse())?;
            self.left.set(left);
        }
        Ok(())
    }

    /// Whether nothing more may be simulated.
    pub fn is_over(&self) -> bool {
        let events = self.longest.get();
        self.is_long(events) && self.left.get() < events
    }

    /// That there is no replay for a kind of GPU.
    pub const fn refuse(&self) -> EstimateError {
        EstimateError::NotReplayed { events: self.longest.get(), kinds: self.kinds }
    }

    /// Takes off a simulation: kinds that run another program are simulated anew.
    pub fn note_simulation(&self) {
        self.simulations.set(self.simulations.get() + 1);
        self.take_off(SIMULATION);
    }

    /// How many were noted.
    pub const fn simulations(&self) -> u64 {
        self.simulations.get()
    }

    fn take_off(&self, replays: u64) {
        let events = self.longest.get();
        let taken = if self.is_long(events) { replays * events } else { 0 };
        self.left.set(self.left.get().saturating_sub(taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_simulated_before_counts_where_it_is_long() {
        let is_over = |events| Replaying::new(100, 4).after(events, SIMULATION).is_over();
        // Of 20 all four kinds may be replayed, of 30 one more, of 40 none.
        assert_eq!([20, 30, 40].map(is_over), [false, false, true]);
        assert!(!Replaying::new(100, 1).is_long(1000), "who names one GPU has named the fewest");
    }
}
