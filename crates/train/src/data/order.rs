//! The order in which examples come: each once an epoch, shared out over ranks, as the seed and the epoch decide. Where a training
//! stands is two numbers, so that it goes on exactly there.

use serde::{Deserialize, Serialize};

use tonnage_core::random::SplitMix64;

/// How far a training is through its examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are done.
    pub epoch: u64,
    /// Examples of this epoch that this rank has seen.
    pub window: u64,
}

/// How many examples there are, and which of them are this rank's.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    count: u64,
    seed: u64,
    ranks: u64,
    rank: u64,
}

impl Order {
    /// `rank` of `ranks` processes sees every `ranks`-th example of an epoch's order.
    pub fn new(count: u64, seed: u64, ranks: u64, rank: u64) -> Self {
        Self { count, seed, ranks: ranks.max(1), rank }
    }

    /// Examples of an epoch, over all ranks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Those of an epoch that this rank sees: the same number on every rank, so that none waits; the few that are left over are
    /// other ones in each epoch.
    pub fn of_rank(&self) -> u64 {
        self.count / self.ranks
    }

    fn shuffled(&self, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.count).unwrap_or(u32::MAX)).collect();
        let mut random = SplitMix64::new(self.seed ^ epoch.wrapping_mul(0xa076_1d64_78bd_642f));
        for last in (1..order.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
        order
    }

    /// An endless walk from `position` on.
    pub fn walk(&self, position: Position) -> Walk {
        Walk { order: *self, position, shuffled: self.shuffled(position.epoch) }
    }
}

/// Examples by their numbers, epoch after epoch.
#[derive(Debug)]
pub struct Walk {
    order: Order,
    position: Position,
    shuffled: Vec<u32>,
}

impl Walk {
    /// Where the next example is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next example.
    pub fn next_example(&mut self) -> usize {
        if self.position.window >= self.order.of_rank() {
            self.position = Position { epoch: self.position.epoch + 1, window: 0 };
            self.shuffled = self.order.shuffled(self.position.epoch);
        }
        let place = self.position.window * self.order.ranks + self.order.rank;
        self.position.window += 1;
        self.shuffled.get(place as usize).copied().unwrap_or_default() as usize
    }
}
