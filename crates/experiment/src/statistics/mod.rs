//! Statistics of few runs. Pure functions of arrays; every definition is held against scipy, statsmodels or rliable in
//! `tests/statistics.rs`. The unit is a run (a seed), never a node, a round or a question, unless a function says so.

mod bootstrap;
mod distribution;
mod effect;
mod items;
mod means;
mod permutation;
mod power;
mod summary;
mod tasks;

pub use bootstrap::{LEVEL, Resampling, bootstrap_interval, stratified_interval};
pub use distribution::{nct_cdf, normal_quantile, t_cdf, t_quantile};
pub use effect::{Effect, cliffs_delta, hedges_paired, hedges_unpaired, improvement_probability};
pub use items::{McNemar, mcnemar_test, paired_items, pass_all, pass_at};
pub use means::{MeanTest, mean_interval, paired_t, welch_test};
pub use permutation::{Permutation, permute_paired, permute_unpaired};
pub use power::{power_paired, power_unpaired, seeds_needed_paired, seeds_needed_unpaired};
pub use summary::{Summary, iqm, mean, median, quantile, sd};
pub use tasks::{TaskScores, performance_profile, task_improvement, task_iqm};

/// The least family of `p` values that are not above the given ones and control the family's error: Holm's step-down.
pub fn holm_correction(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut least: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        least = least.max((p[index] * (p.len() - rank) as f64).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}
