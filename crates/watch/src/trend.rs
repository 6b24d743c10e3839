//! [`Trend`]: how fast memory grows once a job has warmed up. The slope is the median of the slopes of all pairs of points
//! (Theil and Sen), which a spike or a step does not move; whether it is a trend at all is the share of pairs that rise.

use crate::history::{History, Point};
use tonnage_core::small_sort::SmallSort;

/// Loading and the first steps are no trend.
const WARM_UP_SECONDS: f64 = 60.0;
/// A window must have so much time after that.
const LEAST_SECONDS: f64 = 120.0;
/// The window that is looked at first.
const WINDOW_SECONDS: f64 = 600.0;
/// Points of a window, each the highest of its time.
const POINTS: usize = 60;
const LEAST_POINTS: usize = 12;
/// Rising pairs less falling ones, of all: below this it is noise, or one step. Half of a window's pairs are on
/// different sides of a single step in its middle.
const LEAST_AGREEMENT: f64 = 0.6;
/// Slower than this is not worth a word.
const LEAST_BYTES_PER_SECOND: f64 = 1024.0;

/// A growth that is not noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Bytes a second, above zero.
    pub bytes_per_second: f64,
    /// Over how many seconds.
    pub seconds: f64,
}

impl Trend {
    /// The trend of a series: of its last minutes, or else of all of it.
    pub fn of(history: &History) -> Option<Self> {
        let (began, last) = (history.began()?, history.last()?);
        let warm = began + WARM_UP_SECONDS;
        let recent = (last.time - WINDOW_SECONDS).max(warm);
        trend_of(&history.since(recent)).or_else(|| trend_of(&history.since(warm)))
    }

    /// Seconds until `free` bytes are used.
    pub fn seconds_to_fill(&self, free: u64) -> f64 {
        free as f64 / self.bytes_per_second
    }
}

fn trend_of(points: &[Point]) -> Option<Trend> {
    // Most series stand still, and then no pair rises.
    let first = points.first()?;
    if points.iter().all(|point| point.bytes == first.bytes) {
        return None;
    }
    let points = thin_points(points)?;
    // As time only goes forward, a pair rises where its bytes do: most series show no trend, and cost no division.
    let pairs =
        || points.iter().enumerate().flat_map(|(index, one)| points[index + 1..].iter().map(move |other| (one, other)));
    let agreement: i64 =
        pairs().map(|(one, other)| i64::from(other.bytes > one.bytes) - i64::from(other.bytes < one.bytes)).sum();
    let count = points.len() * (points.len() - 1) / 2;
    if (agreement as f64) / (count as f64) < LEAST_AGREEMENT {
        return None;
    }
    let slope = |(one, other): (&Point, &Point)| (other.bytes as f64 - one.bytes as f64) / (other.time - one.time);
    let mut slopes: Vec<f64> = pairs().map(slope).collect();
    slopes.small_sort_by(f64::total_cmp);
    let bytes_per_second = slopes[slopes.len() / 2];
    let seconds = points.last()?.time - points.first()?.time;
    (bytes_per_second >= LEAST_BYTES_PER_SECOND).then_some(Trend { bytes_per_second, seconds })
}

/// The highest points of equal spans of time; `None` where there is too little.
fn thin_points(points: &[Point]) -> Option<Vec<Point>> {
    let (first, last) = (points.first()?.time, points.last()?.time);
    if last - first < LEAST_SECONDS {
        return None;
    }
    let span = (last - first) / POINTS as f64;
    let mut thinned: Vec<(usize, Point)> = Vec::with_capacity(POINTS + 1);
    for point in points {
        let place = ((point.time - first) / span) as usize;
        match thinned.last_mut().filter(|(last, _)| *last == place) {
            Some((_, highest)) if point.bytes > highest.bytes => *highest = *point,
            Some(_) => {}
            None => thinned.push((place, *point)),
        }
    }
    (thinned.len() >= LEAST_POINTS).then(|| thinned.into_iter().map(|(_, point)| point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn trend(bytes: impl Fn(u64) -> u64, seconds: u64) -> Option<Trend> {
        let mut history = History::default();
        (0..seconds).for_each(|time| history.push(Point { time: time as f64, bytes: bytes(time) }));
        Trend::of(&history)
    }

    #[test]
    fn a_leak_is_measured() {
        let leak = trend(|time| 4000 * MIB + time * 3 * MIB, 600).unwrap();
        assert!((leak.bytes_per_second / (3 * MIB) as f64 - 1.0).abs() < 0.01, "{leak:?}");
        assert!((leak.seconds_to_fill(3000 * MIB) / 1000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_leak_in_blocks_with_spikes_is_measured() {
        let leak =
            trend(|time| 4000 * MIB + time / 30 * 20 * MIB + u64::from(time % 97 == 0) * 900 * MIB, 900).unwrap();
        assert!((leak.bytes_per_second / (20 * MIB) as f64 * 30.0 - 1.0).abs() < 0.1, "{leak:?}");
    }

    #[test]
    fn what_is_no_leak_is_none() {
        let sawtooth = |time: u64| 4000 * MIB + time % 13 * 100 * MIB;
        let step = |time: u64| if time < 300 { 4000 * MIB } else { 6000 * MIB };
        let loading = |time: u64| (time * 100 * MIB).min(5000 * MIB);
        for (name, found) in [
            ("sawtooth", trend(sawtooth, 600)),
            ("step", trend(step, 600)),
            ("load", trend(loading, 600)),
            ("still", trend(|_| 4000 * MIB, 600)),
        ] {
            assert_eq!(found, None, "{name}");
        }
        assert_eq!(trend(|time| time * MIB, 100), None, "too short");
        assert_eq!(trend(|time| 4000 * MIB - time * MIB, 600), None, "falls");
    }
}
