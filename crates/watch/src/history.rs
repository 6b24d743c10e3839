//! [`History`]: one series of bytes over time in bounded memory: the last minutes as they were, and everything in buckets
//! that grow wider as time passes, each with its highest value.

use std::collections::VecDeque;

/// Points kept as they were: ten minutes at one a second.
const RECENT: usize = 600;
/// Buckets of everything.
const BUCKETS: usize = 512;

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds since 1970.
    pub time: f64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    recent: VecDeque<Point>,
    all: Vec<Bucket>,
    /// How many points a full bucket holds.
    per_bucket: u32,
    peak: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    highest: Point,
    points: u32,
}

impl History {
    /// Adds a point; one that is not later than the last is dropped.
    pub fn push(&mut self, point: Point) {
        if self.last().is_some_and(|last| point.time <= last.time) {
            return;
        }
        self.peak = self.peak.max(point.bytes);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(point);
        self.push_bucket(point);
    }

    fn push_bucket(&mut self, point: Point) {
        self.per_bucket = self.per_bucket.max(1);
        match self.all.last_mut().filter(|bucket| bucket.points < self.per_bucket) {
            Some(bucket) => bucket.add(Bucket { highest: point, points: 1 }),
            None => self.all.push(Bucket { highest: point, points: 1 }),
        }
        if self.all.len() > BUCKETS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.per_bucket *= 2;
        let join = |pair: &[Bucket]| {
            let mut bucket = pair[0];
            pair[1..].iter().for_each(|other| bucket.add(*other));
            bucket
        };
        self.all = self.all.chunks(2).map(join).collect();
    }

    /// The last point.
    pub fn last(&self) -> Option<Point> {
        self.recent.back().copied()
    }

    /// When it began.
    pub fn began(&self) -> Option<f64> {
        self.all.first().map(|bucket| bucket.highest.time)
    }

    /// The highest value ever.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The points since `time`, as finely as they are kept.
    pub fn since(&self, time: f64) -> Vec<Point> {
        let finest = self.recent.front().is_some_and(|first| first.time <= time) || self.all.len() >= self.recent.len();
        // Time only goes forward.
        if finest {
            self.recent.range(self.recent.partition_point(|point| point.time < time)..).copied().collect()
        } else {
            let from = self.all.partition_point(|bucket| bucket.highest.time < time);
            self.all[from..].iter().map(|bucket| bucket.highest).collect()
        }
    }

    /// All of it, coarsely.
    pub fn all(&self) -> Vec<Point> {
        self.since(f64::NEG_INFINITY)
    }
}

impl Bucket {
    fn add(&mut self, other: Self) {
        if other.highest.bytes >= self.highest.bytes {
            self.highest = other.highest;
        }
        self.points += other.points;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(points: u64, bytes: impl Fn(u64) -> u64) -> History {
        let mut history = History::default();
        (0..points).for_each(|time| history.push(Point { time: time as f64, bytes: bytes(time) }));
        history
    }

    #[test]
    fn a_day_is_bounded_and_keeps_its_peak() {
        let history = history(86_400, |time| if time == 777 { 9000 } else { time % 7 });
        assert!(history.all.len() <= BUCKETS && history.recent.len() == RECENT);
        assert_eq!(history.peak(), 9000);
        assert!(history.all().iter().any(|point| point.bytes == 9000));
        assert!(history.all().is_sorted_by(|one, other| one.time < other.time));
        assert_eq!(history.since(86_000.0).len(), 400);
    }

    #[test]
    fn time_only_goes_forward() {
        let mut history = history(10, |time| time);
        history.push(Point { time: 3.0, bytes: 100 });
        assert_eq!((history.peak(), history.all().len()), (9, 10));
    }
}
