//! Scores of runs on several tasks, as rliable has them: a run is a row, a task a column, and seeds are drawn within a task.

use super::bootstrap::ranked_interval;
use super::{Resampling, improvement_probability, iqm};

/// Scores by task: a list of runs for each.
pub type TaskScores = [Vec<f64>];

/// The interquartile mean over all runs and tasks, and its stratified bootstrap interval.
pub fn task_iqm(tasks: &TaskScores, how: Resampling) -> Option<(f64, Option<[f64; 2]>)> {
    let all: Vec<f64> = tasks.concat();
    if all.is_empty() {
        return None;
    }
    let strata: Vec<&[f64]> = tasks.iter().map(Vec::as_slice).collect();
    let how = how.within(20_000_000, all.len());
    let interval = ranked_interval(&strata, how, |ranked, counts| iqm_of(&ranked.values, counts, all.len()));
    Some((iqm(&all), interval))
}

/// The interquartile mean of `n` values drawn from `sorted`, each as often as its count says.
fn iqm_of(sorted: &[f64], counts: &[u32], n: usize) -> f64 {
    let cut = n / 4;
    let (from, to) = (cut, n - cut);
    let (mut place, mut sum) = (0, 0.0);
    for (value, count) in sorted.iter().zip(counts) {
        let next = place + *count as usize;
        let inside = next.min(to).saturating_sub(place.max(from));
        if inside > 0 {
            sum += value * inside as f64;
        }
        place = next;
    }
    sum / (to - from) as f64
}

/// The share of runs, over all tasks, whose score is above each of `thresholds`.
pub fn performance_profile(tasks: &TaskScores, thresholds: &[f64]) -> Vec<f64> {
    let mut all = tasks.concat();
    all.sort_unstable_by(f64::total_cmp);
    let above = |threshold: &f64| all.len() - all.partition_point(|score| score <= threshold);
    thresholds.iter().map(|threshold| above(threshold) as f64 / all.len().max(1) as f64).collect()
}

/// The probability that a run of `b` is above a run of `a`, averaged over the tasks.
pub fn task_improvement(a: &TaskScores, b: &TaskScores) -> Option<f64> {
    let each: Option<Vec<f64>> = a.iter().zip(b).map(|(a, b)| improvement_probability(a, b)).collect();
    each.filter(|each| !each.is_empty()).map(|each| each.iter().sum::<f64>() / each.len() as f64)
}
