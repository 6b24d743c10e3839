//! The order in which a text is trained on: windows of its tokens, each once an epoch, shared out over ranks, in an order that the
//! seed and the epoch decide. Where a training stands is a number, so that it goes on exactly there.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// Tokens cut into windows of `length` inputs, each with the token that follows as its last label.
#[derive(Clone, Debug)]
pub struct Windows {
    tokens: Vec<u32>,
    length: usize,
    seed: u64,
    ranks: u64,
    rank: u64,
}

/// How far a training is through its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are done.
    pub epoch: u64,
    /// Windows of this epoch that this rank has seen.
    pub window: u64,
}

impl Windows {
    /// `rank` of `ranks` processes sees every `ranks`-th window of the epoch's order.
    ///
    /// # Errors
    /// When the tokens make no window for each rank.
    pub fn new(tokens: Vec<u32>, length: usize, seed: u64, ranks: u64, rank: u64) -> Result<Self, TrainError> {
        let windows = Self { tokens, length: length.max(1), seed, ranks: ranks.max(1), rank };
        if windows.of_rank() == 0 {
            return Err(TrainError::Vocabulary(format!(
                "{} tokens make {} windows of {length} tokens, fewer than {ranks} processes: shorten seq_len, or train on more text",
                windows.tokens.len(),
                windows.count(),
            )));
        }
        Ok(windows)
    }

    /// Windows of an epoch, over all ranks. Each starts where the one before ended, so that every token is a label once.
    pub fn count(&self) -> u64 {
        (self.tokens.len().saturating_sub(1) / self.length) as u64
    }

    /// Windows of an epoch that this rank sees: the same number on every rank, so that none waits; the few that are left over
    /// are other ones in each epoch.
    pub fn of_rank(&self) -> u64 {
        self.count() / self.ranks
    }

    /// The order of an epoch, for all windows.
    fn order(&self, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.count()).unwrap_or(u32::MAX)).collect();
        let mut random = SplitMix64(self.seed ^ epoch.wrapping_mul(0xa076_1d64_78bd_642f));
        for last in (1..order.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
        order
    }

    /// An endless walk from `position` on.
    pub fn walk(&self, position: Position) -> Walk<'_> {
        Walk { windows: self, position, order: self.order(position.epoch) }
    }
}

/// Windows one after another, epoch after epoch.
#[derive(Debug)]
pub struct Walk<'a> {
    windows: &'a Windows,
    position: Position,
    order: Vec<u32>,
}

impl<'a> Walk<'a> {
    /// Where the next window is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next window: `length` inputs and one token more, for the labels.
    pub fn next_window(&mut self) -> &'a [u32] {
        let windows = self.windows;
        if self.position.window >= windows.of_rank() {
            self.position = Position { epoch: self.position.epoch + 1, window: 0 };
            self.order = windows.order(self.position.epoch);
        }
        let place = self.position.window * windows.ranks + windows.rank;
        self.position.window += 1;
        let window = self.order.get(place as usize).copied().unwrap_or_default() as usize;
        windows.tokens.get(window * windows.length..=(window + 1) * windows.length).unwrap_or_default()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, evenly (Lemire 2019, without his rejection: the bias is below 2^-32 for bounds of 32 bits).
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn starts(windows: &Windows, position: Position, count: u64) -> Vec<u32> {
        let mut walk = windows.walk(position);
        (0..count).map(|_| walk.next_window()[0]).collect()
    }

    proptest! {
        #[test]
        fn every_window_comes_once_an_epoch(tokens in 2_usize..400, length in 1_usize..20, ranks in 1_u64..5, seed: u64) {
            let text: Vec<u32> = (0..tokens as u32).collect();
            let Ok(first) = Windows::new(text.clone(), length, seed, ranks, 0) else {
                prop_assert!(((tokens - 1) / length) < ranks as usize);
                return Ok(());
            };
            let mut seen = Vec::new();
            for rank in 0..ranks {
                let windows = Windows::new(text.clone(), length, seed, ranks, rank).unwrap();
                prop_assert_eq!(windows.of_rank(), first.of_rank());
                seen.extend(starts(&windows, Position::default(), windows.of_rank()));
            }
            let distinct: BTreeSet<u32> = seen.iter().copied().collect();
            prop_assert_eq!(distinct.len(), seen.len(), "no window twice");
            prop_assert!(first.count() - (seen.len() as u64) < ranks, "fewer are left over than there are ranks");
        }

        #[test]
        fn a_walk_goes_on_where_another_stopped(tokens in 30_usize..200, length in 1_usize..9, stop in 0_u64..60, seed: u64) {
            let windows = Windows::new((0..tokens as u32).collect(), length, seed, 2, 1).unwrap();
            let whole = starts(&windows, Position::default(), 100);
            let mut walk = windows.walk(Position::default());
            for _ in 0..stop {
                walk.next_window();
            }
            prop_assert_eq!(starts(&windows, walk.position(), 100 - stop), &whole[stop as usize..]);
        }
    }

    #[test]
    fn windows_have_their_labels_and_no_token_is_skipped() {
        let windows = Windows::new((0..11).collect(), 5, 1, 1, 0).unwrap();
        let mut walk = windows.walk(Position::default());
        let mut both = [walk.next_window().to_vec(), walk.next_window().to_vec()];
        both.sort();
        assert_eq!(both, [(0..=5).collect::<Vec<_>>(), (5..=10).collect()]);
    }

    #[test]
    fn epochs_and_seeds_have_orders_of_their_own() {
        let of = |seed, epoch| {
            starts(&Windows::new((0..1001).collect(), 10, seed, 1, 0).unwrap(), Position { epoch, window: 0 }, 100)
        };
        assert_ne!(of(1, 0), of(1, 1));
        assert_ne!(of(1, 0), of(2, 0));
        assert_eq!(of(1, 0), of(1, 0));
    }

    #[test]
    fn too_little_text_says_so() {
        let error = Windows::new((0..20).collect(), 10, 1, 4, 0).unwrap_err().to_string();
        assert!(error.contains("1 windows of 10") && error.contains("seq_len"), "{error}");
    }
}
