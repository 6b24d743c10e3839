//! [`Scale`]: numbers to places, and round numbers beside them.

/// Numbers from `low` to `high` over a stretch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    /// That all of `values` fit in; a little room on both sides.
    pub fn of_values(values: impl Iterator<Item = f64>, is_log: bool, room: f64) -> Self {
        let usable = |value: &f64| value.is_finite() && (!is_log || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(usable).map(|value| if is_log { value.log10() } else { value }) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        // What is one number has room around it; what spans the whole range of floats has none.
        let width = high - low;
        let margin = if width > 0.0 && width.is_finite() { width * room } else { (low.abs() * 0.1).clamp(1e-9, 1e300) };
        Self { low: (low - margin).max(-1e300), high: (high + margin).min(1e300), is_log }
    }

    /// The share of the stretch at which `value` lies; `None` of what cannot be drawn.
    pub fn place_of(&self, value: f64) -> Option<f64> {
        let value = if self.is_log { value.log10() } else { value };
        let share = (value - self.low) / (self.high - self.low);
        share.is_finite().then_some(share)
    }

    /// Round numbers on it, about `count`, with their texts.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.is_log {
            let (from, to) = (self.low.floor() as i32, self.high.ceil() as i32);
            let step = ((to - from) as usize / count.max(1)).max(1);
            let ticks = (from..=to).step_by(step).map(|power| 10f64.powi(power));
            return ticks
                .filter(|tick| self.is_in(*tick))
                .map(|tick| (tick, crate::check::number_text(tick)))
                .collect();
        }
        let rough = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil();
        let ticks = (0..=2 * count).map(|index| (first + index as f64) * step);
        // Zero is not written -0, nor 1e-17.
        let clean = |tick: f64| if tick.abs() < step * 1e-6 { 0.0 } else { tick };
        ticks.map(clean).filter(|tick| self.is_in(*tick)).map(|tick| (tick, short_number(tick, step))).collect()
    }

    fn is_in(&self, value: f64) -> bool {
        self.place_of(value).is_some_and(|share| (-1e-9..=1.0 + 1e-9).contains(&share))
    }
}

/// A tick's text: as many decimals as the step has; thousands and millions by letters.
fn short_number(value: f64, step: f64) -> String {
    let size = value.abs();
    if size >= 1e16 || (size > 0.0 && size < 1e-5) {
        return format!("{value:.1e}");
    }
    for (unit, letter) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if size >= unit * 10.0 || (size >= unit && step >= unit / 10.0) {
            return format!("{}{letter}", crate::check::number_text(value / unit));
        }
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 8.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let texts = |values: &[f64]| {
            Scale::of_values(values.iter().copied(), false, 0.0)
                .ticks(5)
                .into_iter()
                .map(|tick| tick.1)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&[0.0, 1.0]), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(&[0.0, 2000.0]), ["0", "500", "1k", "1.5k", "2k"]);
        assert_eq!(texts(&[-0.03, 0.03]), ["-0.02", "0.00", "0.02"]);
        assert_eq!(Scale::of_values([1.0, 1000.0].into_iter(), true, 0.0).ticks(4).len(), 4);
    }

    #[test]
    fn whatever_numbers_come_there_is_a_scale() {
        let cases: [&[f64]; 6] =
            [&[], &[f64::NAN], &[f64::INFINITY, 1.0], &[f64::MAX, f64::MIN], &[0.0], &[-1e-320, 1e-320]];
        for values in cases {
            for is_log in [false, true] {
                let scale = Scale::of_values(values.iter().copied(), is_log, 0.05);
                assert!(scale.low < scale.high, "{values:?} {scale:?}");
                assert!(scale.ticks(5).len() < 30);
            }
        }
    }
}
