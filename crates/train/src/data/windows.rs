//! A text cut into windows of its tokens, which are trained on in an order that the seed and the epoch decide.

use crate::error::TrainError;

use tonnage_core::job::RowGrowth;

use super::order::{self, Order, Position};

/// Tokens cut into windows of so many inputs, each with the token that follows as its last label.
#[derive(Clone, Debug)]
pub struct Windows {
    tokens: Vec<u32>,
    length: usize,
    growth: Option<RowGrowth>,
    order: Order,
}

impl Windows {
    /// `rank` of `ranks` processes sees every `ranks`-th window.
    ///
    /// # Errors
    /// When the tokens make no window for each rank.
    pub fn new(tokens: Vec<u32>, length: usize, seed: u64, ranks: u64, rank: u64) -> Result<Self, TrainError> {
        let length = length.max(1);
        // Each starts where the one before ended, so that every token is a label once.
        let count = (tokens.len().saturating_sub(1) / length) as u64;
        let order = Order::new(count, seed, ranks, rank);
        if count < ranks.max(1) {
            return Err(TrainError::Vocabulary(format!(
                "{} tokens make {count} windows of {length} tokens, fewer than {ranks} processes: shorten seq_len, or train on more text",
                tokens.len(),
            )));
        }
        Ok(Self { tokens, length, growth: None, order })
    }

    /// The same with rows that grow to their length from epoch to epoch.
    #[must_use]
    pub fn growing(self, growth: Option<RowGrowth>) -> Self {
        Self { growth, ..self }
    }

    /// How its rows grow, where they do.
    pub fn growth(&self) -> Option<RowGrowth> {
        self.growth
    }

    /// Inputs of a window in an epoch.
    fn length(&self, epoch: u64) -> usize {
        let grown = self.growth.and_then(|growth| usize::try_from(growth.tokens(epoch)).ok());
        grown.map_or(self.length, |tokens| tokens.saturating_sub(1).max(1))
    }

    /// The order of an epoch's windows.
    pub(super) fn order(&self, epoch: u64) -> Order {
        if self.growth.is_none() {
            return self.order;
        }
        self.order.over((self.tokens.len().saturating_sub(1) / self.length(epoch)) as u64)
    }

    /// Windows of an epoch, over all ranks.
    pub fn count(&self) -> u64 {
        self.order.count()
    }

    /// Windows of the first epoch that this rank sees; ranks may differ by one.
    pub fn of_rank(&self) -> u64 {
        self.order.of_rank()
    }

    /// A window of an epoch by its number: its inputs and one token more, for the labels.
    fn window(&self, epoch: u64, number: usize) -> &[u32] {
        let length = self.length(epoch);
        self.tokens.get(number * length..=(number + 1) * length).unwrap_or_default()
    }

    /// An endless walk from `position` on.
    pub fn walk(&self, position: Position) -> Walk<'_> {
        Walk { windows: self, epoch: position.epoch, walk: self.order(position.epoch).walk(position) }
    }
}

/// Windows one after another, epoch after epoch.
#[derive(Debug)]
pub struct Walk<'a> {
    windows: &'a Windows,
    /// Whose order `walk` is in, where rows grow.
    epoch: u64,
    walk: order::Walk,
}

impl<'a> Walk<'a> {
    /// Where the next window is.
    pub fn position(&self) -> Position {
        self.walk.position()
    }

    /// The next window.
    pub fn next_window(&mut self) -> &'a [u32] {
        let position = self.walk.position();
        if self.windows.growth.is_some() && position.epoch != self.epoch {
            *self = self.windows.walk(position);
        }
        let number = self.walk.next_example();
        self.windows.window(position.epoch, number)
    }

    /// Up to `rows` windows of one length: where rows grow, a batch ends with its epoch.
    pub fn next_windows(&mut self, rows: u64) -> Vec<&'a [u32]> {
        let mut found = vec![self.next_window()];
        while (found.len() as u64) < rows && !(self.windows.growth.is_some() && self.walk.position().window == 0) {
            found.push(self.next_window());
        }
        found
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
                seen.extend(starts(&windows, Position::default(), windows.of_rank()));
            }
            prop_assert_eq!(seen.len() as u64, first.count(), "none is left out");
            let distinct: BTreeSet<u32> = seen.iter().copied().collect();
            prop_assert_eq!(distinct.len(), seen.len(), "none comes twice");
        }

        #[test]
        fn ranks_together_see_what_one_process_sees(tokens in 40_usize..200, ranks in 1_u64..6, rounds in 1_u64..60, seed: u64) {
            let text: Vec<u32> = (0..tokens as u32).collect();
            let alone = starts(&Windows::new(text.clone(), 5, seed, 1, 0).unwrap(), Position::default(), rounds * ranks);
            for rank in 0..ranks {
                let windows = Windows::new(text.clone(), 5, seed, ranks, rank).unwrap();
                let own: Vec<u32> = alone.iter().skip(rank as usize).step_by(ranks as usize).copied().collect();
                prop_assert_eq!(starts(&windows, Position::default(), rounds), own, "rank {}", rank);
            }
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
    fn rows_that_grow_end_with_their_epoch_and_go_on_where_they_stopped() {
        let growth = Some(RowGrowth { first: 3, last: 6, epochs: 4 });
        let windows = Windows::new((0..31).collect(), 5, 1, 1, 0).unwrap().growing(growth);
        let mut walk = windows.walk(Position::default());
        let mut seen = Vec::new();
        while walk.position().epoch < 4 {
            let position = walk.position();
            let batch = walk.next_windows(4);
            assert_eq!(windows.walk(position).next_windows(4), batch);
            assert!(batch.iter().all(|row| row.len() == batch[0].len()));
            seen.push((batch[0].len(), batch.len()));
        }
        // 30 labels make 15 rows of 2, 10 of 3, 7 of 4 and 6 of 5.
        let of =
            |tokens: usize| seen.iter().filter(|(length, _)| *length == tokens).map(|(_, rows)| rows).sum::<usize>();
        assert_eq!((of(3), of(4), of(5), of(6)), (15, 10, 7, 6), "{seen:?}");
    }

    #[test]
    fn too_little_text_says_so() {
        let error = Windows::new((0..20).collect(), 10, 1, 4, 0).unwrap_err().to_string();
        assert!(error.contains("1 windows of 10") && error.contains("seq_len"), "{error}");
    }
}
