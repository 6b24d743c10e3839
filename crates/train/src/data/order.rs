//! The order in which examples come: each once an epoch, as the seed and the epoch decide. Ranks take turns, as with
//! `torch.utils.data.DistributedSampler`; but where that one repeats examples or leaves them out so that an epoch divides, what is
//! left of an epoch here goes with the first examples of the next. So every number of ranks makes the same steps of the same
//! examples. Where a training stands is two numbers, so that it goes on exactly there.

use serde::{Deserialize, Serialize};

use tonnage_core::random::SplitMix64;

/// How far a training is through its examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are done.
    pub epoch: u64,
    /// Examples of this epoch that all ranks together have seen.
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
    /// `rank` of `ranks` processes sees every `ranks`-th example.
    pub fn new(count: u64, seed: u64, ranks: u64, rank: u64) -> Self {
        Self { count, seed, ranks: ranks.max(1), rank }
    }

    /// The same over another number of examples.
    #[must_use]
    pub fn over(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// Examples of an epoch, over all ranks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Those of the first epoch that this rank sees; ranks may differ by one.
    pub fn of_rank(&self) -> u64 {
        self.count.saturating_sub(self.rank).div_ceil(self.ranks)
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
        let epoch = self.own(position).epoch;
        Walk { order: *self, position, epoch, shuffled: self.shuffled(epoch) }
    }

    /// Where this rank's next example is, when all ranks together stand at `position`.
    fn own(&self, position: Position) -> Position {
        self.after(position, self.rank)
    }

    fn after(&self, position: Position, examples: u64) -> Position {
        let window = position.window.saturating_add(examples);
        Position { epoch: position.epoch + window / self.count.max(1), window: window % self.count.max(1) }
    }
}

/// Examples by their numbers, epoch after epoch.
#[derive(Debug)]
pub struct Walk {
    order: Order,
    /// Of all ranks, when each has seen as many as this one.
    position: Position,
    /// Whose order is `shuffled`.
    epoch: u64,
    shuffled: Vec<u32>,
}

impl Walk {
    /// Where all ranks stand.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next example.
    pub fn next_example(&mut self) -> usize {
        let own = self.order.own(self.position);
        if own.epoch != self.epoch {
            self.epoch = own.epoch;
            self.shuffled = self.order.shuffled(own.epoch);
        }
        self.position = self.order.after(self.position, self.order.ranks);
        self.shuffled.get(own.window as usize).copied().unwrap_or_default() as usize
    }
}
