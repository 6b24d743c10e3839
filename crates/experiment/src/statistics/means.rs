//! Tests of means: Welch's, and Student's of paired differences. The difference is `b - a` throughout.

use super::LEVEL;
use super::distribution::{t_quantile, t_two_sided};
use super::summary::{mean, sd};

/// A difference of means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanTest {
    /// Mean of `b` less mean of `a`.
    pub difference: f64,
    /// Limits of [`LEVEL`].
    pub interval: [f64; 2],
    pub t: f64,
    /// Its degrees of freedom.
    pub df: f64,
    pub p: f64,
}

impl MeanTest {
    fn new(difference: f64, error: f64, df: f64) -> Self {
        let reach = t_quantile(0.5 + LEVEL / 2.0, df) * error;
        let t = difference / error;
        // Without any spread a difference is certain, and no difference is none.
        let (t, p) = if error > 0.0 {
            (t, t_two_sided(t, df))
        } else if difference == 0.0 {
            (0.0, 1.0)
        } else {
            (difference.signum() * f64::INFINITY, 0.0)
        };
        Self { difference, interval: [difference - reach, difference + reach], t, df, p }
    }
}

/// Welch's test: two samples whose spreads may differ. `None` below two values each.
pub fn welch_test(a: &[f64], b: &[f64]) -> Option<MeanTest> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let error = |values: &[f64]| sd(values).powi(2) / values.len() as f64;
    let (of_a, of_b) = (error(a), error(b));
    let share = |part: f64, n: usize| part * part / (n - 1) as f64;
    let spread = share(of_a, a.len()) + share(of_b, b.len());
    let df = if spread > 0.0 { (of_a + of_b).powi(2) / spread } else { (a.len() + b.len() - 2) as f64 };
    Some(MeanTest::new(mean(b) - mean(a), (of_a + of_b).sqrt(), df))
}

/// Student's test of the differences of pairs. `None` below two pairs.
pub fn paired_t(pairs: &[(f64, f64)]) -> Option<MeanTest> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    if differences.len() < 2 {
        return None;
    }
    let n = differences.len() as f64;
    Some(MeanTest::new(mean(&differences), sd(&differences) / n.sqrt(), n - 1.0))
}

/// The interval of one sample's mean, by Student's t; `None` below two values.
pub fn mean_interval(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let reach = t_quantile(0.5 + LEVEL / 2.0, n - 1.0) * sd(values) / n.sqrt();
    Some([mean(values) - reach, mean(values) + reach])
}
