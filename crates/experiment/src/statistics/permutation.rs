//! Permutation tests of a difference of means, two-sided: exact where all arrangements can be counted, drawn where not.

use super::summary::mean;
use tonnage_core::random::SplitMix64;

/// More arrangements than this are drawn, not counted.
const MOST_ARRANGEMENTS: u64 = 200_000;
/// Arrangements that are drawn; with the observed one they are 10,000.
const DRAWN: u64 = 9_999;
/// Of the drawn arrangements.
const SEED: u64 = 20_261_122;

/// What a permutation test says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Permutation {
    /// The share of arrangements whose difference is at least as far from zero, the observed one among them.
    pub p: f64,
    /// The smallest p that as many values can give at all.
    pub least_p: f64,
    /// Arrangements that were looked at.
    pub arrangements: u64,
    /// Whether these are all.
    pub is_exact: bool,
}

/// Values exchanged between two samples. `None` where one is empty.
pub fn permute_unpaired(a: &[f64], b: &[f64]) -> Option<Permutation> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let all: Vec<f64> = b.iter().chain(a).copied().collect();
    let total: f64 = all.iter().sum();
    let gap = |sum_of_b: f64| (sum_of_b / b.len() as f64 - (total - sum_of_b) / a.len() as f64).abs();
    let observed = reached_threshold((mean(b) - mean(a)).abs(), &all);
    let count = binomial_coefficient(all.len() as u64, b.len() as u64).filter(|count| *count <= MOST_ARRANGEMENTS);
    // Of equal sizes every arrangement has a mirror image that is as far from zero.
    let mirrored = if a.len() == b.len() { 2.0 } else { 1.0 };
    let Some(count) = count else {
        let mut random = SplitMix64::new(SEED);
        let mut shuffled = all.clone();
        let reached = (0..DRAWN).filter(|_| {
            for place in 0..b.len() {
                shuffled.swap(place, place + random.index_below(all.len() - place));
            }
            gap(shuffled[..b.len()].iter().sum()) >= observed
        });
        return Some(drawn_result(reached.count() as u64));
    };
    let mut reached = 0u64;
    each_choice(&all, b.len(), &mut |sum| reached += u64::from(gap(sum) >= observed));
    Some(Permutation {
        p: share_of(reached, count),
        least_p: mirrored / count as f64,
        arrangements: count,
        is_exact: true,
    })
}

/// Signs of paired differences turned. `None` without pairs.
pub fn permute_paired(pairs: &[(f64, f64)]) -> Option<Permutation> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    if differences.is_empty() {
        return None;
    }
    let observed = reached_threshold(differences.iter().sum::<f64>().abs(), &differences);
    let signed = |bits: u64| -> f64 {
        let turned = |(place, value): (usize, &f64)| if bits >> (place % 64) & 1 == 1 { -value } else { *value };
        differences.iter().enumerate().map(turned).sum()
    };
    if differences.len() < 64 && 1u64 << differences.len() <= MOST_ARRANGEMENTS {
        let count = 1u64 << differences.len();
        let reached = (0..count).filter(|bits| signed(*bits).abs() >= observed).count() as u64;
        return Some(Permutation {
            p: share_of(reached, count),
            least_p: 2.0 / count as f64,
            arrangements: count,
            is_exact: true,
        });
    }
    let mut random = SplitMix64::new(SEED);
    let mut turned =
        || differences.iter().map(|value| if random.next_u64() >> 63 == 1 { -value } else { *value }).sum();
    let reached = (0..DRAWN)
        .filter(|_| {
            let sum: f64 = turned();
            sum.abs() >= observed
        })
        .count() as u64;
    Some(drawn_result(reached))
}

/// What a difference must reach to be as far: sums in another order differ in their last bits.
fn reached_threshold(observed: f64, values: &[f64]) -> f64 {
    let size: f64 = values.iter().map(|value| value.abs()).sum();
    observed - 1e-12 * size.max(f64::MIN_POSITIVE)
}

/// The observed arrangement is one of those (Phipson and Smyth 2010): never zero.
fn drawn_result(reached: u64) -> Permutation {
    let count = DRAWN + 1;
    Permutation { p: share_of(reached + 1, count), least_p: share_of(1, count), arrangements: count, is_exact: false }
}

fn share_of(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Binomial coefficient; `None` beyond u64.
fn binomial_coefficient(n: u64, k: u64) -> Option<u64> {
    let k = k.min(n.checked_sub(k)?);
    (1..=k).try_fold(1u64, |product, i| Some(product.checked_mul(n - k + i)? / i))
}

/// Calls `found` with the sum of every choice of `count` of `values`.
fn each_choice(values: &[f64], count: usize, found: &mut impl FnMut(f64)) {
    let mut chosen: Vec<usize> = (0..count).collect();
    loop {
        found(chosen.iter().map(|index| values[*index]).sum());
        let Some(place) = (0..count).rev().find(|place| chosen[*place] < values.len() - count + place) else { return };
        chosen[place] += 1;
        for after in place + 1..count {
            chosen[after] = chosen[after - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_p_is_said() {
        let three = permute_unpaired(&[1.0, 2.0, 3.0], &[7.0, 8.0, 9.0]).unwrap();
        assert_eq!((three.p, three.least_p, three.arrangements), (0.1, 0.1, 20));
        let pairs = permute_paired(&[(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)]).unwrap();
        assert_eq!((pairs.p, pairs.least_p, pairs.arrangements), (0.25, 0.25, 8));
        let unequal = permute_unpaired(&[1.0], &[7.0, 8.0, 9.0]).unwrap();
        assert_eq!((unequal.p, unequal.least_p), (0.25, 0.25));
    }

    #[test]
    fn what_cannot_be_counted_is_drawn_and_never_zero() {
        let a: Vec<f64> = (0..40).map(f64::from).collect();
        let b: Vec<f64> = (1000..1040).map(f64::from).collect();
        let far = permute_unpaired(&a, &b).unwrap();
        assert_eq!((far.is_exact, far.p), (false, 1e-4));
        let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
        assert_eq!(permute_paired(&pairs).map(|test| test.p), Some(1e-4));
        assert_eq!(permute_unpaired(&a, &a).map(|test| test.p), Some(1.0));
    }

    #[test]
    fn equal_values_differ_by_nothing() {
        assert_eq!(permute_unpaired(&[0.0; 3], &[0.0; 3]).map(|test| test.p), Some(1.0));
        assert_eq!(permute_paired(&[(0.1, 0.1); 3]).map(|test| test.p), Some(1.0));
        assert_eq!(permute_unpaired(&[], &[1.0]), None);
    }
}
