//! Work on several items at once, with results in their order: what is computed does not depend on how many cores there are.

use std::sync::atomic::{AtomicUsize, Ordering};
use tonnage_core::small_sort::SmallSort;

/// More threads than this do not help a report.
const MOST: usize = 8;

/// `work` of every item, in the order of the items.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST).min(items.len().max(1));
    let mut all = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(take)).collect();
        let mut all = take();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.small_sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1_000).collect();
        assert_eq!(side_by_side(&items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(side_by_side(&[] as &[u64], |item| *item), Vec::<u64>::new());
    }
}
