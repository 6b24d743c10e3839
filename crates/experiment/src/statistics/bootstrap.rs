//! Bootstrap intervals: percentile, of one array or stratified, with a stated number of resamples and a stated seed.

use super::summary::quantile;
use tonnage_core::random::SplitMix64;
use tonnage_core::small_sort::SmallSort;

/// The share of cases in which an interval holds the true value.
pub const LEVEL: f64 = 0.95;

/// How an interval was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampling {
    pub resamples: usize,
    /// Of the random sequence.
    pub seed: u64,
}

impl Default for Resampling {
    /// Ten thousand. A limit's standard error, from seed to seed, is `sqrt(p (1 - p) / R) / f(z) = 2.67 / sqrt(R)` standard
    /// errors of the statistic, p = 0.025 and z = 1.96 of the normal density f; of the interval's width, which is 3.92 of these,
    /// `0.68 / sqrt(R)`: 0.7 % of 10,000 resamples, 1.5 % of 2,000, 2.2 % of 1,000.
    fn default() -> Self {
        Self { resamples: 10_000, seed: 20_261_122 }
    }
}

impl Resampling {
    /// At most `work` drawn values for arrays of `n`, and a thousand resamples at least.
    pub fn within(self, work: usize, n: usize) -> Self {
        Self { resamples: (work / n.max(1)).clamp(1_000, self.resamples.max(1_000)), ..self }
    }
}

/// The interval of `statistic` over resamples of `values`; it may spoil the slice that it is given.
pub fn bootstrap_interval(values: &[f64], how: Resampling, statistic: impl Fn(&mut [f64]) -> f64) -> Option<[f64; 2]> {
    stratified_interval(&[values], how, |strata| statistic(&mut strata[0]))
}

/// The interval of `statistic` over resamples of every stratum by itself. `None` where a stratum has fewer than two values:
/// there is nothing to resample.
pub fn stratified_interval(
    strata: &[&[f64]],
    how: Resampling,
    statistic: impl Fn(&mut [Vec<f64>]) -> f64,
) -> Option<[f64; 2]> {
    if strata.is_empty() || strata.iter().any(|values| values.len() < 2) {
        return None;
    }
    let mut random = SplitMix64::new(how.seed);
    let mut drawn: Vec<Vec<f64>> = strata.iter().map(|values| values.to_vec()).collect();
    let mut estimates = Vec::with_capacity(how.resamples);
    for _ in 0..how.resamples {
        for (values, drawn) in strata.iter().zip(&mut drawn) {
            drawn.iter_mut().for_each(|slot| *slot = values[random.index_below(values.len())]);
        }
        estimates.push(statistic(&mut drawn));
    }
    interval_limits(estimates)
}

/// The percentiles of [`LEVEL`].
fn interval_limits(mut estimates: Vec<f64>) -> Option<[f64; 2]> {
    estimates.retain(|estimate| estimate.is_finite());
    estimates.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - LEVEL) / 2.0;
    (!estimates.is_empty()).then(|| [quantile(&estimates, tail), quantile(&estimates, 1.0 - tail)])
}

/// Values of several strata in one order.
pub(super) struct Ranked {
    /// The values, ascending.
    pub values: Vec<f64>,
    /// The stratum of each.
    pub of: Vec<usize>,
}

/// The interval of a statistic that asks only how often every value was drawn, so that nothing is sorted but once. The draws
/// are those of [`stratified_interval`].
pub(super) fn ranked_interval(
    strata: &[&[f64]],
    how: Resampling,
    statistic: impl Fn(&Ranked, &[u32]) -> f64,
) -> Option<[f64; 2]> {
    if strata.is_empty() || strata.iter().any(|values| values.len() < 2) {
        return None;
    }
    let (ranked, places) = strata_ranks(strata);
    let mut random = SplitMix64::new(how.seed);
    let mut counts = vec![0u32; ranked.values.len()];
    let estimates = (0..how.resamples).map(|_| {
        counts.fill(0);
        for places in &places {
            (0..places.len()).for_each(|_| counts[places[random.index_below(places.len())]] += 1);
        }
        statistic(&ranked, &counts)
    });
    interval_limits(estimates.collect())
}

/// All values in order, and the places there of every stratum's.
fn strata_ranks(strata: &[&[f64]]) -> (Ranked, Vec<Vec<usize>>) {
    let of = |(stratum, values): (usize, &&[f64])| {
        values.iter().enumerate().map(|(index, value)| (*value, stratum, index)).collect::<Vec<_>>()
    };
    let mut all: Vec<(f64, usize, usize)> = strata.iter().enumerate().flat_map(of).collect();
    all.small_sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut places: Vec<Vec<usize>> = strata.iter().map(|values| vec![0; values.len()]).collect();
    all.iter().enumerate().for_each(|(place, (_, stratum, index))| places[*stratum][*index] = place);
    let values = all.iter().map(|one| one.0).collect();
    (Ranked { values, of: all.into_iter().map(|one| one.1).collect() }, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::mean;

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values = [0.3, 0.5, 0.1, 0.9, 0.4];
        let at =
            |seed| bootstrap_interval(&values, Resampling { resamples: 2_000, seed }, |drawn| mean(drawn)).unwrap();
        assert_eq!(at(7), at(7));
        assert_ne!(at(7), at(8));
        assert_eq!(bootstrap_interval(&[1.0], Resampling::default(), |drawn| mean(drawn)), None, "nothing to resample");
    }

    #[test]
    fn ranked_draws_are_the_stratified_ones() {
        let (a, b) = ([0.3, 0.5, 0.1, 0.9, 0.4, 0.4], [1.3, 0.4, 0.2]);
        let how = Resampling { resamples: 3_000, seed: 5 };
        let sum = |ranked: &Ranked, counts: &[u32]| {
            let weight = |of: usize| if of == 0 { 1.0 } else { 10.0 };
            let each = ranked.values.iter().zip(&ranked.of).zip(counts);
            each.map(|((value, of), count)| value * weight(*of) * f64::from(*count)).sum()
        };
        let plain = |drawn: &mut [Vec<f64>]| drawn[0].iter().sum::<f64>() + 10.0 * drawn[1].iter().sum::<f64>();
        let (found, expected) =
            (ranked_interval(&[&a, &b], how, sum).unwrap(), stratified_interval(&[&a, &b], how, plain).unwrap());
        assert!((0..2).all(|at| (found[at] - expected[at]).abs() < 1e-9), "{found:?}, {expected:?}");
    }

    /// What the documentation says of the error of a limit.
    #[test]
    fn a_limit_scatters_as_the_resamples_say() {
        let values: Vec<f64> = (0..40).map(|i| f64::from(i * i % 41)).collect();
        let at =
            |seed| bootstrap_interval(&values, Resampling { resamples: 1_000, seed }, |drawn| mean(drawn)).unwrap();
        let intervals: Vec<[f64; 2]> = (0..200).map(at).collect();
        let width = mean(&intervals.iter().map(|limits| limits[1] - limits[0]).collect::<Vec<_>>());
        let scatter = crate::statistics::sd(&intervals.iter().map(|limits| limits[1]).collect::<Vec<_>>()) / width;
        let said = 0.68 / 1_000f64.sqrt();
        assert!((0.75 * said..1.25 * said).contains(&scatter), "{scatter}, said {said}");
    }

    #[test]
    fn strata_are_drawn_by_themselves() {
        // Were the strata mixed, the mean would vary; each by itself is constant.
        let interval =
            stratified_interval(&[&[1.0, 1.0], &[9.0, 9.0]], Resampling::default(), |strata| mean(&strata.concat()));
        assert_eq!(interval, Some([5.0, 5.0]));
    }
}
