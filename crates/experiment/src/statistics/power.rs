//! How many seeds a gap would need: power of the t tests, from the noncentral t.

use super::distribution::{nct_cdf, t_quantile};

/// The share of experiments that should see the gap.
const WANTED: f64 = 0.8;
/// The error that is allowed.
const ALPHA: f64 = 0.05;
/// More seeds than this nobody runs.
const MOST: usize = 10_000;

/// The power of a two-sided t test of two samples of `n` each, for a difference of `effect` standard deviations.
pub fn power_unpaired(effect: f64, n: usize) -> f64 {
    power_of_t(effect * (n as f64 / 2.0).sqrt(), (2 * n - 2) as f64)
}

/// The same of `n` pairs, for a mean of `effect` standard deviations of the differences.
pub fn power_paired(effect: f64, n: usize) -> f64 {
    power_of_t(effect * (n as f64).sqrt(), (n - 1) as f64)
}

fn power_of_t(noncentrality: f64, df: f64) -> f64 {
    let critical = t_quantile(1.0 - ALPHA / 2.0, df);
    1.0 - nct_cdf(critical, df, noncentrality) + nct_cdf(-critical, df, noncentrality)
}

/// Seeds of each sample with which four experiments of five would see `effect`; `None` above ten thousand.
pub fn seeds_needed_unpaired(effect: f64) -> Option<usize> {
    needed_runs(effect, power_unpaired)
}

pub fn seeds_needed_paired(effect: f64) -> Option<usize> {
    needed_runs(effect, power_paired)
}

/// Power rises with `n`: the first that is enough lies between two powers of two.
fn needed_runs(effect: f64, power: impl Fn(f64, usize) -> f64) -> Option<usize> {
    let effect = effect.abs();
    let is_enough = |n: usize| power(effect, n) >= WANTED;
    if !effect.is_finite() || effect == 0.0 {
        return None;
    }
    let mut high = 2;
    while !is_enough(high) {
        high *= 2;
        if high > MOST {
            return None;
        }
    }
    let mut low = 2.max(high / 2);
    while low < high {
        let middle = low.midpoint(high);
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}
