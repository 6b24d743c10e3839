//! [`Axis`]: what curves are held against. A claim that holds by steps may not hold by what was generated, trained or paid for.

use crate::run::Run;

/// What a curve's x is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// Optimizer steps or rounds.
    Steps,
    /// Tokens sampled from the policy.
    TokensGenerated,
    /// Tokens that gradients were computed for.
    TokensTrained,
    /// Wall time times GPUs.
    GpuHours,
}

/// All of them, in the order of reports, with their names on the command line and in words.
pub const AXES: [(Axis, &str, &str); 4] = [
    (Axis::Steps, "steps", "steps"),
    (Axis::TokensGenerated, "generated-tokens", "generated tokens"),
    (Axis::TokensTrained, "training-tokens", "training tokens"),
    (Axis::GpuHours, "gpu-hours", "GPU-hours"),
];

impl Axis {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        AXES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    pub fn words(self) -> &'static str {
        AXES.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }

    /// The one called `name`.
    pub fn of_name(name: &str) -> Option<Self> {
        AXES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The series that holds it.
    const fn series(self) -> Option<&'static str> {
        match self {
            Self::Steps => None,
            Self::TokensGenerated => Some("tokens_generated"),
            Self::TokensTrained => Some("tokens_trained"),
            Self::GpuHours => Some("gpu_hours"),
        }
    }

    /// Whether `run` says it.
    pub fn is_known(self, run: &Run) -> bool {
        self.series().is_none_or(|name| run.metric(name).is_some())
    }

    /// Where `run` is on it at `step`; at a step after its last point, what that says.
    pub fn at(self, run: &Run, step: f64) -> Option<f64> {
        let Some(name) = self.series() else { return Some(step) };
        let series = run.metric(name)?;
        series.value_at(step).or_else(|| series.last_point().map(|last| last.1))
    }

    /// The last step of `run` at which it is at most `budget`.
    pub fn step_within(self, run: &Run, budget: f64) -> Option<f64> {
        let Some(name) = self.series() else { return Some(budget) };
        let series = run.metric(name)?;
        // Counted from the beginning, so it never falls; where a log says otherwise the first excess counts.
        let within = series.values().iter().take_while(|value| **value <= budget * (1.0 + 1e-9)).count();
        let last = within.checked_sub(1)?;
        let (step, value) = (series.step_at(last), series.values()[last]);
        let Some(next) = series.values().get(within) else { return Some(f64::INFINITY) };
        let share = if *next > value { (budget - value) / (next - value) } else { 0.0 };
        Some(step + (series.step_at(within) - step) * share.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;

    #[test]
    fn a_budget_ends_where_it_is_spent() {
        let mut run = Run::default();
        run.series.insert("gpu_hours".to_owned(), Series::of_points([(0.0, 0.0), (100.0, 1.0), (200.0, 3.0)]));
        let within = |budget| Axis::GpuHours.step_within(&run, budget);
        assert_eq!(
            (within(0.5), within(1.0), within(2.0), within(9.0)),
            (Some(50.0), Some(100.0), Some(150.0), Some(f64::INFINITY))
        );
        assert_eq!((Axis::GpuHours.at(&run, 150.0), Axis::GpuHours.at(&run, 500.0)), (Some(2.0), Some(3.0)));
        assert_eq!((Axis::Steps.step_within(&run, 7.0), Axis::TokensTrained.at(&run, 1.0)), (Some(7.0), None));
        assert!(AXES.iter().all(|row| Axis::of_name(row.1) == Some(row.0)));
    }
}
