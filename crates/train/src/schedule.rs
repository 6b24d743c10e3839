//! Learning-rate schedules of transformers (optimization.py of 5.17): what a step's rate is, as a share of the rate that was set.

use std::f64::consts::PI;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// `lr_scheduler_type` of `TrainingArguments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// The whole rate from the first step on.
    Constant,
    /// The whole rate after the warm-up.
    ConstantWithWarmup,
    /// Down to 0 at the last step.
    Linear,
    /// Half a cosine down to 0.
    Cosine,
    /// One over the square root of the step, from the end of the warm-up on.
    InverseSqrt,
}

impl Schedule {
    /// All, with their names in `TrainingArguments`.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Constant, "constant"),
        (Self::ConstantWithWarmup, "constant_with_warmup"),
        (Self::Linear, "linear"),
        (Self::Cosine, "cosine"),
        (Self::InverseSqrt, "inverse_sqrt"),
    ];

    /// The share of the rate at `step` (0 for the first) of `steps`, of which the first `warmup` rise to it.
    pub fn share(self, step: u64, warmup: u64, steps: u64) -> f64 {
        let rising = step as f64 / warmup.max(1) as f64;
        if self != Self::Constant && step < warmup {
            return rising;
        }
        let left = steps.saturating_sub(step) as f64 / steps.saturating_sub(warmup).max(1) as f64;
        let done = step.saturating_sub(warmup) as f64 / steps.saturating_sub(warmup).max(1) as f64;
        match self {
            Self::Constant | Self::ConstantWithWarmup => 1.0,
            Self::Linear => left.max(0.0),
            // num_cycles 0.5.
            Self::Cosine => (0.5 * (1.0 + (PI * done).cos())).max(0.0),
            Self::InverseSqrt => {
                let timescale = if warmup == 0 { 10_000 } else { warmup } as f64;
                1.0 / ((step as f64 + timescale - warmup as f64) / timescale).sqrt()
            }
        }
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(one, _)| one == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.iter().find(|(_, name)| *name == text).map(|(one, _)| *one);
        named.ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            format!("no schedule is called `{text}`; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_transformers() {
        for (one, name) in Schedule::ALL {
            assert_eq!(name.parse(), Ok(one));
            assert_eq!(one.to_string(), name);
        }
        assert!("cosinus".parse::<Schedule>().unwrap_err().contains("inverse_sqrt"));
    }

    #[test]
    fn no_step_and_no_warmup_is_no_division_by_zero() {
        for (one, _) in Schedule::ALL {
            for (step, warmup, steps) in [(0, 0, 0), (5, 0, 0), (5, 5, 5), (9, 3, 5), (0, 10, 5)] {
                let share = one.share(step, warmup, steps);
                assert!((0.0..=1.0).contains(&share), "{one} {step} {warmup} {steps}: {share}");
            }
        }
    }
}
