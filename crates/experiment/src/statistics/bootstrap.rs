//! Bootstrap intervals: percentile, of one array or stratified, with a stated number of resamples and a stated seed.

use super::random::Random;
use super::summary::quantile;

/// The share of cases in which an interval holds the true value.
pub const LEVEL: f64 = 0.95;

/// How an interval was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampling {
    /// Resamples.
    pub resamples: usize,
    /// Of the random sequence.
    pub seed: u64,
}

impl Default for Resampling {
    /// Ten thousand: the limits move by about a hundredth of the interval's width from seed to seed.
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
pub fn bootstrap(values: &[f64], how: Resampling, statistic: impl Fn(&mut [f64]) -> f64) -> Option<[f64; 2]> {
    stratified(&[values], how, |strata| statistic(&mut strata[0]))
}

/// The interval of `statistic` over resamples of every stratum by itself. `None` where a stratum has fewer than two values:
/// there is nothing to resample.
pub fn stratified(strata: &[&[f64]], how: Resampling, statistic: impl Fn(&mut [Vec<f64>]) -> f64) -> Option<[f64; 2]> {
    if strata.is_empty() || strata.iter().any(|values| values.len() < 2) {
        return None;
    }
    let mut random = Random::new(how.seed);
    let mut drawn: Vec<Vec<f64>> = strata.iter().map(|values| values.to_vec()).collect();
    let mut estimates = Vec::with_capacity(how.resamples);
    for _ in 0..how.resamples {
        for (values, drawn) in strata.iter().zip(&mut drawn) {
            drawn.iter_mut().for_each(|slot| *slot = values[random.below(values.len())]);
        }
        estimates.push(statistic(&mut drawn));
    }
    estimates.retain(|estimate| estimate.is_finite());
    estimates.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - LEVEL) / 2.0;
    (!estimates.is_empty()).then(|| [quantile(&estimates, tail), quantile(&estimates, 1.0 - tail)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::mean;

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values = [0.3, 0.5, 0.1, 0.9, 0.4];
        let at = |seed| bootstrap(&values, Resampling { resamples: 2_000, seed }, |drawn| mean(drawn)).unwrap();
        assert_eq!(at(7), at(7));
        assert_ne!(at(7), at(8));
        assert_eq!(bootstrap(&[1.0], Resampling::default(), |drawn| mean(drawn)), None, "nothing to resample");
    }

    #[test]
    fn strata_are_drawn_by_themselves() {
        // Were the strata mixed, the mean would vary; each by itself is constant.
        let interval = stratified(&[&[1.0, 1.0], &[9.0, 9.0]], Resampling::default(), |strata| mean(&strata.concat()));
        assert_eq!(interval, Some([5.0, 5.0]));
    }
}
