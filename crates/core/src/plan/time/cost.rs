//! What a time costs: wall clock, GPU-hours, energy and dollars of a run, and what one configuration costs relative to
//! another.

use serde::Serialize;

use super::Range;
use super::assumption::assumed_range;
use crate::gpu::{Price, Rates};
use crate::work::Work;

const SECONDS_PER_HOUR: f64 = 3600.0;

/// How much is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Optimizer steps of the training.
    pub steps: u64,
    /// GPUs that are taken for all that time.
    pub gpus: u64,
}

/// What a run costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Costs {
    /// From the first step to the last, without loading, evaluation and checkpoints.
    pub wall_seconds: Range,
    /// Hours of all GPUs together.
    pub gpu_hours: Range,
    /// Energy of the GPUs; `None` where their power is not known.
    pub kilowatt_hours: Option<Range>,
    /// What is paid; `None` without a price.
    pub dollars: Option<Range>,
    /// The price that was reckoned with.
    pub price: Option<Price>,
}

/// The costs of a run whose mean step takes `step_seconds`.
pub fn costs_of(step_seconds: Range, run: Run, rates: Option<&Rates>, price: Option<&Price>) -> Costs {
    let wall_seconds = step_seconds.scaled(run.steps as f64);
    let gpu_hours = wall_seconds.scaled(run.gpus as f64 / SECONDS_PER_HOUR);
    let watts = rates.and_then(|rates| rates.watts);
    Costs {
        wall_seconds,
        gpu_hours,
        kilowatt_hours: watts.map(|watts| gpu_hours.times(assumed_range("power")).scaled(watts as f64 / 1000.0)),
        dollars: price.map(|price| gpu_hours.scaled(price.dollars_per_gpu_hour)),
        price: price.cloned(),
    }
}

/// How often the operations of `base`'s steps the first `steps` steps of `work` run; `None` where `base` runs none.
pub fn cost_factor(work: &Work, base: &Work, steps: u64) -> Option<f64> {
    let flops = base.flops_of_steps(steps);
    (flops > 0.0).then(|| work.flops_of_steps(steps) / flops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_energy_and_dollars_follow_from_the_step() {
        let step = Range { low: 1.0, typical: 2.0, high: 4.0 };
        let rates = Rates { watts: Some(400), ..Rates::default() };
        let price = Price::own(2.5).unwrap();
        let costs = costs_of(step, Run { steps: 1800, gpus: 8 }, Some(&rates), Some(&price));
        assert_eq!(costs.wall_seconds.typical, 3600.0);
        assert_eq!(costs.gpu_hours, Range { low: 4.0, typical: 8.0, high: 16.0 });
        assert_eq!(costs.dollars.unwrap().high, 40.0);
        assert!((costs.kilowatt_hours.unwrap().typical - 8.0 * 0.75 * 0.4).abs() < 1e-9);
        assert_eq!(costs.price.unwrap().source, "given by you");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let costs = costs_of(Range::exactly(1.0), Run { steps: 1, gpus: 1 }, None, None);
        assert_eq!((costs.kilowatt_hours, costs.dollars), (None, None));
    }
}
