//! Curves that start apart: before the first update all configurations are the same model on the same questions.

use super::{Check, Flag, Severity, number_text};
use crate::experiment::{Configuration, Experiment};
use crate::statistics::{mean, sd, welch_test};

/// A start that differs by so many standard errors of what one curve scatters is no chance.
const FAR: f64 = 4.0;
/// With several runs each, the chance of such a difference.
const P: f64 = 0.01;

pub(super) const CHECK: Check = Check {
    name: "curves start apart",
    looks_for: "first points that differ although no update was made: what is plotted is not the same quantity, or not the same start",
    run,
};

fn run(all: &Experiment) -> Vec<Flag> {
    let Some(baseline) = all.baseline() else { return Vec::new() };
    let of = |one: &Configuration| -> Vec<(f64, f64)> {
        all.runs_of(one).filter_map(|run| start_point(run.metric(all.metrics.first()?)?)).collect()
    };
    let first = of(baseline);
    let apart = |other: &Configuration| {
        let (a, b) = (first.clone(), of(other));
        let values = |starts: &[(f64, f64)]| starts.iter().map(|start| start.0).collect::<Vec<f64>>();
        let (of_a, of_b) = (values(&a), values(&b));
        let (is_far, by) = is_far(&a, &b, &of_a, &of_b)?;
        is_far.then(|| Flag {
            check: CHECK.name,
            severity: Severity::Warns,
            configurations: vec![other.name.clone()],
            said: format!(
                "{} and {} start apart in `{}`, where no update was made yet",
                baseline.name, other.name, all.metric
            ),
            evidence: vec![format!(
                "first points: {} against {} ({by})",
                number_text(mean(&of_a)),
                number_text(mean(&of_b))
            )],
        })
    };
    all.others().iter().filter_map(apart).collect()
}

/// Whether starts differ by more than chance, and by what that is judged.
fn is_far(a: &[(f64, f64)], b: &[(f64, f64)], of_a: &[f64], of_b: &[f64]) -> Option<(bool, String)> {
    let gap = (mean(of_b) - mean(of_a)).abs();
    if of_a.len() >= 3 && of_b.len() >= 3 {
        let test = welch_test(of_a, of_b)?;
        return Some((test.p < P && gap > 0.0, format!("Welch's p = {:.1e}", test.p)));
    }
    let noise = |starts: &[(f64, f64)]| starts.iter().map(|start| start.1).fold(0.0, f64::max);
    let scatter = noise(a).max(noise(b));
    let size = mean(of_a).abs().max(mean(of_b).abs());
    // A curve that does not scatter at all is smoothed or constant: then a tenth is a difference.
    let is_far = gap.is_finite() && gap > FAR * scatter && gap > 0.1 * size;
    is_far.then(|| (true, format!("neighbouring points differ by about {}", number_text(scatter))))
}

/// The first point of a curve, and how much its first points scatter from one to the next.
fn start_point(series: &crate::series::Series) -> Option<(f64, f64)> {
    let values = series.values();
    if values.len() < 3 {
        return None;
    }
    let steps: Vec<f64> = values.windows(2).take(20.max(values.len() / 20)).map(|pair| pair[1] - pair[0]).collect();
    Some((values[0], sd(&steps) / std::f64::consts::SQRT_2))
        .filter(|(value, noise)| value.is_finite() && noise.is_finite())
}
