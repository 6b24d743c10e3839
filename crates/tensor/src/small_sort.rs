//! A stable sort of which the program has one copy: the standard library's is 6 kB of code for every type and comparison, and
//! lists that are sorted for a table are short.

use std::cmp::Ordering;

/// Sorts like the methods of a slice that are named without `small_`, through one compiled sort.
pub trait SmallSort<T> {
    /// In ascending order.
    fn small_sort(&mut self)
    where
        T: Ord,
    {
        self.small_sort_by(T::cmp);
    }

    /// In ascending order of a key, which is made anew for every comparison.
    fn small_sort_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.small_sort_by(|one, other| key(one).cmp(&key(other)));
    }

    /// By a comparison; what it calls equal stays in its order.
    fn small_sort_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);
}

impl<T> SmallSort<T> for [T] {
    fn small_sort_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        let mut places = sorted_places(self.len(), &|one, other| compare(&self[one], &self[other]));
        for first in 0..places.len() {
            let mut at = first;
            while places[at] != first {
                let next = places[at];
                self.swap(at, next);
                places[at] = at;
                at = next;
            }
            places[at] = at;
        }
    }
}

/// Where what belongs to each place stands.
fn sorted_places(length: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..length).collect();
    places.sort_by(|one, other| compare(*one, *other));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_sorts_is_what_the_standard_library_sorts() {
        // Knuth's multiplicative hash of the place: in no order, and some are equal.
        let scattered = |at: usize, length: usize| ((at as u64 * 2_654_435_761) >> 7) % (length as u64 / 2 + 1);
        for length in (0..40).chain([1000]) {
            let mut small: Vec<(u64, usize)> = (0..length).map(|at| (scattered(at, length), at)).collect();
            let mut usual = small.clone();
            small.small_sort_by_key(|(key, _)| std::cmp::Reverse(*key));
            usual.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
            assert_eq!(small, usual);
            small.small_sort();
            usual.sort_unstable();
            assert_eq!(small, usual);
        }
    }
}
