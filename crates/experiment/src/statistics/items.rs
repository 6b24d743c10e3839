//! Answers to questions: pass@k and pass^k of samples, McNemar's test and the bootstrap of two models on one test set.

use super::{Resampling, bootstrap_interval, mean};

/// The probability that one of `k` samples is right, from `correct` of `n`: `1 - C(n-c, k) / C(n, k)`, unbiased (Chen et al.
/// 2021). `None` where `k` is above `n` or zero: so many samples were not drawn.
pub fn pass_at(n: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || k > n || correct > n {
        return None;
    }
    if n - correct < k {
        return Some(1.0);
    }
    Some(1.0 - (n - correct + 1..=n).map(|i| 1.0 - k as f64 / i as f64).product::<f64>())
}

/// The probability that all of `k` samples are right: `C(c, k) / C(n, k)`, written pass^k. `None` as of [`pass_at`].
pub fn pass_all(n: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || k > n || correct > n {
        return None;
    }
    Some((0..k).map(|i| correct.saturating_sub(i) as f64 / (n - i) as f64).product())
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct McNemar {
    /// Questions that only the first answered rightly.
    pub only_a: u64,
    /// Questions that only the second did.
    pub only_b: u64,
    /// Two-sided, by the exact binomial.
    pub p: f64,
}

/// Whether two models differ on the questions that they answer differently.
pub fn mcnemar_test(only_a: u64, only_b: u64) -> McNemar {
    let (n, fewer) = (only_a + only_b, only_a.min(only_b));
    // C(n, i) / 2^n, built up in logarithms: n may be thousands.
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for i in 0..=fewer {
        tail += log.exp();
        log += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    let p = if n == 0 { 1.0 } else { (2.0 * tail).min(1.0) };
    McNemar { only_a, only_b, p }
}

/// The mean difference over questions of one test set, with its bootstrap interval over questions.
pub fn paired_items(differences: &[f64], how: Resampling) -> Option<(f64, [f64; 2])> {
    let interval = bootstrap_interval(differences, how.within(20_000_000, differences.len()), |drawn| mean(drawn))?;
    Some((mean(differences), interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_was_drawn_is_refused() {
        assert_eq!((pass_at(4, 0, 8), pass_all(4, 4, 8), pass_at(4, 2, 0), pass_at(4, 5, 1)), (None, None, None, None));
        assert_eq!((pass_at(4, 1, 4), pass_at(4, 0, 4), pass_all(4, 3, 4)), (Some(1.0), Some(0.0), Some(0.0)));
    }
}
