//! A user's measured step: it replaces the estimate of the job it was measured on, and sets the scale of all others.

use super::{Range, Time};

/// The time of a step that a user measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    seconds_per_step: f64,
    /// What was estimated for the same step.
    estimated: Range,
}

impl Measured {
    /// `seconds_per_step` of a job for which `estimated` was found; `None` unless both are above 0.
    pub fn new(seconds_per_step: f64, estimated: Range) -> Option<Self> {
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        (is_time(seconds_per_step) && is_time(estimated.typical)).then_some(Self { seconds_per_step, estimated })
    }

    /// The time of the job that was measured.
    pub fn own(&self) -> Time {
        Time { seconds: Range::exactly(self.seconds_per_step), basis: "measured by you".to_owned() }
    }

    /// The time of another job or GPU, for which `estimated` was found: as much longer or shorter as its estimate is. How far
    /// the estimates of both may be off each other is what remains of the range.
    pub fn rescaled(&self, estimated: Range) -> Time {
        let typical = estimated.typical / self.estimated.typical;
        let ends = [estimated.low / self.estimated.low, estimated.high / self.estimated.high];
        let among = |pick: fn(f64, f64) -> f64| ends.into_iter().filter(|end| end.is_finite()).fold(typical, pick);
        let factor = Range { low: among(f64::min), typical, high: among(f64::max) };
        Time { seconds: factor.scaled(self.seconds_per_step), basis: "scaled from the step measured by you".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_step_replaces_the_estimate_and_scales_others() {
        let estimated = Range { low: 0.5, typical: 1.0, high: 2.0 };
        let measured = Measured::new(3.0, estimated).unwrap();
        assert_eq!(measured.own().seconds, Range::exactly(3.0));
        assert_eq!(measured.rescaled(estimated).seconds, Range::exactly(3.0));
        let slower = measured.rescaled(Range { low: 0.5, typical: 2.0, high: 6.0 }).seconds;
        assert_eq!(slower, Range { low: 3.0, typical: 6.0, high: 9.0 });
    }

    #[test]
    fn nothing_else_is_a_measured_step() {
        let estimated = Range::exactly(1.0);
        assert!([0.0, -1.0, f64::NAN, f64::INFINITY].into_iter().all(|s| Measured::new(s, estimated).is_none()));
        assert!(Measured::new(1.0, Range::default()).is_none());
    }
}
