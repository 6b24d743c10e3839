//! Configurations against the baseline, on every axis: difference, interval, effect, tests, and what that allows to say.

use crate::axis::Axis;
use crate::experiment::{Configuration, Experiment};
use crate::parallel::side_by_side;
use crate::statistics::{
    Effect, MeanTest, Permutation, Resampling, cliffs_delta, hedges_paired, hedges_unpaired, holm_correction, paired_t,
    permute_paired, permute_unpaired, seeds_needed_paired, seeds_needed_unpaired, task_improvement, welch_test,
};

/// The error that a claim may have.
pub const ALPHA: f64 = 0.05;
/// Fewer runs than this say nothing about the spread.
pub const FEWEST: usize = 3;

/// A configuration beside the baseline on one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub configuration: String,
    pub axis: Axis,
    /// Runs of the baseline and of the configuration, or pairs twice.
    pub n: (usize, usize),
    /// Whether pairs were compared.
    pub is_paired: bool,
    /// Its mean less the baseline's.
    pub difference: f64,
    /// Student's or Welch's test, where there are two runs each.
    pub test: Option<MeanTest>,
    /// The same with Holm's correction over the configurations.
    pub holm_p: Option<f64>,
    /// The permutation test.
    pub permutation: Option<Permutation>,
    pub hedges_g: Option<Effect>,
    pub cliffs_delta: Option<Effect>,
    /// The probability that a run of it is better than one of the baseline.
    pub improvement: Option<f64>,
    /// Seeds of each that would show this gap.
    pub seeds_needed: Option<usize>,
    /// What may be said.
    pub verdict: Verdict,
}

/// What may be said of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds, by the mean's test and by the permutation test.
    Holds,
    /// It holds if runs scatter normally: so few runs allow no smaller p without that.
    HoldsIfNormal,
    /// Nothing may be said, and why.
    NoConclusion(String),
}

/// All configurations against the baseline on `axis`. `refuted` says of a configuration what forbids any conclusion.
pub fn compare_configurations(
    all: &Experiment,
    axis: Axis,
    refuted: &dyn Fn(&str) -> Option<String>,
) -> Vec<Comparison> {
    let (Some(baseline), Some(budget)) = (all.baseline(), all.budget(axis)) else { return Vec::new() };
    let mut rows: Vec<Comparison> =
        side_by_side(all.others(), |other| compare_beside(all, baseline, other, axis, budget))
            .into_iter()
            .flatten()
            .collect();
    let tested: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].test.is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|row| rows[*row].test.map(|test| test.p)).collect();
    for (row, p) in tested.into_iter().zip(holm_correction(&p)) {
        rows[row].holm_p = Some(p);
    }
    let of_baseline = refuted(&baseline.name);
    for row in &mut rows {
        row.verdict = match refuted(&row.configuration).or_else(|| of_baseline.clone()) {
            Some(why) => Verdict::NoConclusion(why),
            None => verdict_of(row),
        };
    }
    rows
}

fn compare_beside(
    all: &Experiment,
    baseline: &Configuration,
    other: &Configuration,
    axis: Axis,
    budget: f64,
) -> Option<Comparison> {
    let scores = |one: &Configuration| all.scores(one, axis, budget);
    let (of_baseline, of_other) = (scores(baseline), scores(other));
    let values = |scores: &[Option<crate::experiment::Score>]| {
        scores.iter().flatten().map(|score| score.last).collect::<Vec<f64>>()
    };
    let (a, b) = (values(&of_baseline), values(&of_other));
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let pairs = if all.is_paired { score_pairs(all, (baseline, &of_baseline), (other, &of_other)) } else { Vec::new() };
    let is_paired = pairs.len() >= 2;
    let test = if is_paired { paired_t(&pairs) } else { welch_test(&a, &b) };
    let hedges_g = if is_paired { hedges_paired(&pairs) } else { hedges_unpaired(&a, &b) };
    let needed = if is_paired { seeds_needed_paired } else { seeds_needed_unpaired };
    let (of_a, of_b) = (all.task_scores(baseline, axis, budget), all.task_scores(other, axis, budget));
    let above = task_improvement(&of_a, &of_b);
    Some(Comparison {
        configuration: other.name.clone(),
        axis,
        n: if is_paired { (pairs.len(), pairs.len()) } else { (a.len(), b.len()) },
        is_paired,
        difference: test
            .map_or_else(|| crate::statistics::mean(&b) - crate::statistics::mean(&a), |test| test.difference),
        test,
        holm_p: None,
        permutation: if is_paired { permute_paired(&pairs) } else { permute_unpaired(&a, &b) },
        seeds_needed: hedges_g.and_then(|effect| needed(effect.value)),
        hedges_g,
        cliffs_delta: cliffs_delta(&a, &b, Resampling { resamples: 2_000, ..Resampling::default() }),
        improvement: above.map(|share| if all.lower_is_better { 1.0 - share } else { share }),
        verdict: Verdict::NoConclusion(String::new()),
    })
}

type Scored<'a> = (&'a Configuration, &'a [Option<crate::experiment::Score>]);

/// Scores of runs of one seed.
fn score_pairs(all: &Experiment, a: Scored<'_>, b: Scored<'_>) -> Vec<(f64, f64)> {
    let of = |(configuration, scores): Scored<'_>| -> Vec<(u64, f64)> {
        let runs = all.runs_of(configuration).zip(scores);
        runs.filter_map(|(run, score)| Some((run.identity.seed.filter(|_| run.seed_is_known)?, (*score)?.last)))
            .collect()
    };
    let (a, b) = (of(a), of(b));
    a.iter().filter_map(|(seed, value)| Some((*value, b.iter().find(|other| other.0 == *seed)?.1))).collect()
}

fn verdict_of(row: &Comparison) -> Verdict {
    let fewest = row.n.0.min(row.n.1);
    if fewest < FEWEST {
        return Verdict::NoConclusion(format!(
            "{fewest} {} of one side: the spread is not known",
            if fewest == 1 { "run" } else { "runs" }
        ));
    }
    let (Some(p), Some(permutation)) = (row.holm_p, row.permutation) else {
        return Verdict::NoConclusion("no test".to_owned());
    };
    if p >= ALPHA {
        return Verdict::NoConclusion(format!("p = {p:.3} after Holm's correction: chance does as much"));
    }
    if permutation.p < ALPHA {
        Verdict::Holds
    } else if permutation.least_p >= ALPHA {
        Verdict::HoldsIfNormal
    } else {
        Verdict::NoConclusion(format!(
            "the permutation test gives p = {:.3}, which the mean's test hides",
            permutation.p
        ))
    }
}
