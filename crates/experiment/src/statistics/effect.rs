//! How large a difference is beside the spread: Hedges' g, Cliff's delta, the probability of improvement.

use super::bootstrap::{Ranked, ranked_interval};
use super::distribution::{hedges_correction, nct_cdf, normal_quantile, root_around};
use super::means::{paired_t, welch_test};
use super::summary::{mean, sd};
use super::{LEVEL, Resampling};

/// An effect with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    pub value: f64,
    /// Limits of [`LEVEL`]; `None` where there is nothing to draw them from.
    pub interval: Option<[f64; 2]>,
}

/// Hedges' g of two samples: the difference `b - a` in pooled standard deviations, corrected for small samples; its limits by
/// inversion of the noncentral t. `None` where a sample has one value, or nothing varies.
pub fn hedges_unpaired(a: &[f64], b: &[f64]) -> Option<Effect> {
    welch_test(a, b)?;
    let (n, m) = (a.len() as f64, b.len() as f64);
    let df = n + m - 2.0;
    let pooled = (((n - 1.0) * sd(a).powi(2) + (m - 1.0) * sd(b).powi(2)) / df).sqrt();
    standardized_effect((mean(b) - mean(a)) / pooled, (1.0 / n + 1.0 / m).sqrt(), df)
}

/// The same of pairs: the mean difference in standard deviations of the differences.
pub fn hedges_paired(pairs: &[(f64, f64)]) -> Option<Effect> {
    let test = paired_t(pairs)?;
    let scale = 1.0 / (pairs.len() as f64).sqrt();
    standardized_effect(test.t * scale, scale, test.df)
}

fn standardized_effect(d: f64, scale: f64, df: f64) -> Option<Effect> {
    if !d.is_finite() {
        return None;
    }
    let (t, tail, correction) = (d / scale, (1.0 - LEVEL) / 2.0, hedges_correction_of(df));
    // Of many runs Johnson and Welch's normal approximation (1940) is as good where the effect is no larger than this; a test holds it
    // to a hundredth of the width.
    let (middle, reach) = (t * (1.0 - 0.25 / df), normal_quantile(1.0 - tail) * (1.0 + t * t / (2.0 * df)).sqrt());
    let interval = if df >= 30.0 && t * t <= 2.0 * df {
        [middle - reach, middle + reach]
    } else {
        let limit = |share: f64| root_around(middle, reach, |nc| nct_cdf(t, df, nc) - share);
        [limit(1.0 - tail), limit(tail)]
    };
    let interval = interval.map(|limit| limit * scale * correction);
    let interval = Some(interval);
    Some(Effect { value: d * correction, interval })
}

fn hedges_correction_of(df: f64) -> f64 {
    // With one degree of freedom the correction is zero: two pairs do not tell an effect's size.
    if df > 1.0 { hedges_correction(df) } else { 0.0 }
}

/// Cliff's delta: how much oftener a value of `b` is above one of `a` than below it, from -1 to 1; limits by bootstrap of
/// each sample.
pub fn cliffs_delta(a: &[f64], b: &[f64], how: Resampling) -> Option<Effect> {
    let value = delta_of(a, b)?;
    let how = how.within(2_000_000, a.len() + b.len());
    let pairs = (a.len() * b.len()) as f64;
    let interval = ranked_interval(&[a, b], how, |ranked, counts| 2.0 * win_share(ranked, counts) / pairs - 1.0);
    Some(Effect { value, interval })
}

/// Pairs of drawn values in which the second stratum's is above the first's; equal ones count half.
fn win_share(ranked: &Ranked, counts: &[u32]) -> f64 {
    let (mut below, mut wins, mut at) = (0.0, 0.0, 0);
    while let Some(value) = ranked.values.get(at) {
        let (mut of_a, mut of_b) = (0.0, 0.0);
        while ranked.values.get(at).is_some_and(|other| other.total_cmp(value).is_eq()) {
            if ranked.of[at] == 0 {
                of_a += f64::from(counts[at])
            } else {
                of_b += f64::from(counts[at])
            }
            at += 1;
        }
        wins += of_b * (below + 0.5 * of_a);
        below += of_a;
    }
    wins
}

fn delta_of(a: &[f64], b: &[f64]) -> Option<f64> {
    improvement_probability(a, b).map(|share| 2.0 * share - 1.0)
}

/// The probability that a run of `b` is above a run of `a`; equal ones count half (Mann and Whitney's U over n m).
pub fn improvement_probability(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut sorted = b.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let of = |x: &f64| {
        let (below, up_to) = (sorted.partition_point(|y| y < x), sorted.partition_point(|y| y <= x));
        (sorted.len() - up_to) as f64 + 0.5 * (up_to - below) as f64
    };
    Some(a.iter().map(of).sum::<f64>() / (a.len() * b.len()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_apart_have_delta_one() {
        let effect = cliffs_delta(&[1.0, 2.0], &[3.0, 4.0], Resampling::default()).unwrap();
        assert_eq!((effect.value, effect.interval), (1.0, Some([1.0, 1.0])));
        assert_eq!(hedges_unpaired(&[1.0, 1.0], &[1.0, 1.0]), None, "nothing varies");
        assert_eq!(cliffs_delta(&[], &[1.0], Resampling::default()), None);
    }
}
