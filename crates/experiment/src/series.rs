//! [`Series`]: one metric of one run over its steps, as columns; and how a long one is drawn without losing a spike.

/// The steps of a series: most are evenly spaced, and then cost nothing.
#[derive(Clone, Debug, PartialEq)]
enum Steps {
    Even { first: f64, stride: f64 },
    Listed(Vec<f64>),
}

/// One metric of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    steps: Steps,
    values: Vec<f64>,
    /// Points read; more than are kept where a report is very large.
    count: usize,
    sum: f64,
    is_sorted: bool,
    /// Lines or records of its file with the first and the last point, from 1.
    pub lines: (usize, usize),
}

impl Default for Series {
    fn default() -> Self {
        Self {
            steps: Steps::Even { first: 0.0, stride: 0.0 },
            values: Vec::new(),
            count: 0,
            sum: 0.0,
            is_sorted: true,
            lines: (0, 0),
        }
    }
}

impl Series {
    /// Of points in any order.
    pub fn of_points(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut series = Self::default();
        points.into_iter().enumerate().for_each(|(line, (step, value))| series.push(step, value, line + 1));
        series.finish_points();
        series
    }

    /// Adds a point that stands in `line` of the file.
    pub fn push(&mut self, step: f64, value: f64, line: usize) {
        let n = self.values.len();
        if n == 0 {
            self.lines.0 = line;
            self.steps = Steps::Even { first: step, stride: 0.0 };
        } else {
            self.is_sorted &= step > self.step_at(n - 1);
            match &mut self.steps {
                Steps::Even { first, stride } if n == 1 => *stride = step - *first,
                Steps::Even { first, stride } if *first + *stride * n as f64 == step => {}
                Steps::Even { first, stride } => {
                    let mut listed: Vec<f64> = (0..n).map(|i| *first + *stride * i as f64).collect();
                    listed.push(step);
                    self.steps = Steps::Listed(listed);
                }
                Steps::Listed(listed) => listed.push(step),
            }
        }
        self.values.push(value);
        self.lines.1 = line;
    }

    /// Puts the points in order; of two at one step the later one counts, as of a run that was resumed. Says how many were
    /// replaced.
    pub fn finish_points(&mut self) -> usize {
        let before = self.values.len();
        if !self.is_sorted {
            let mut points: Vec<(f64, f64)> = self.points().collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut kept: Vec<(f64, f64)> = Vec::with_capacity(points.len());
            for point in points {
                match kept.last_mut().filter(|last| last.0 == point.0) {
                    Some(last) => *last = point,
                    None => kept.push(point),
                }
            }
            let lines = self.lines;
            *self = Self::default();
            kept.into_iter().for_each(|(step, value)| self.push(step, value, 0));
            self.lines = lines;
        }
        self.values.shrink_to_fit();
        if let Steps::Listed(listed) = &mut self.steps {
            listed.shrink_to_fit();
        }
        if self.count < before {
            self.count = self.values.len();
            self.sum = self.values.iter().filter(|value| value.is_finite()).sum();
        }
        before - self.values.len()
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The sum of all finite values read.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The step of point `index`.
    pub fn step_at(&self, index: usize) -> f64 {
        match &self.steps {
            Steps::Even { first, stride } => *first + *stride * index as f64,
            Steps::Listed(listed) => listed[index],
        }
    }

    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Steps and values.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.values.iter().enumerate().map(|(index, value)| (self.step_at(index), *value))
    }

    /// The last point.
    pub fn last_point(&self) -> Option<(f64, f64)> {
        let last = self.values.len().checked_sub(1)?;
        Some((self.step_at(last), self.values[last]))
    }

    /// Points whose step is at most `step`.
    pub fn points_until(&self, step: f64) -> usize {
        match &self.steps {
            Steps::Listed(listed) => listed.partition_point(|at| *at <= step),
            Steps::Even { .. } => {
                let (mut low, mut high) = (0, self.values.len());
                while low < high {
                    let middle = low.midpoint(high);
                    if self.step_at(middle) <= step { low = middle + 1 } else { high = middle }
                }
                low
            }
        }
    }

    /// The value at `step`, between two points linearly; beyond the last one `None`, before the first the first.
    pub fn value_at(&self, step: f64) -> Option<f64> {
        let after = self.points_until(step);
        let Some(before) = after.checked_sub(1) else { return self.values.first().copied() };
        let (from, value) = (self.step_at(before), self.values[before]);
        if from == step {
            return Some(value);
        }
        let next = *self.values.get(after)?;
        Some(value + (next - value) * (step - from) / (self.step_at(after) - from))
    }

    /// Keeps at most `most` points, the extremes of every stretch among them.
    pub fn thin_out(&mut self, most: usize) {
        if self.values.len() <= most {
            return;
        }
        let kept = min_max(&self.points().collect::<Vec<_>>(), most / 4);
        let (count, sum, lines) = (self.count, self.sum, self.lines);
        *self = Self::default();
        kept.into_iter().for_each(|(step, value)| self.push(step, value, 0));
        self.values.shrink_to_fit();
        (self.count, self.sum, self.lines) = (count, sum, lines);
    }
}

/// Of every one of `columns` equal stretches of x the first, least, greatest and last point, in order: what is drawn of them
/// covers the same pixels as all, so no spike is lost. Points must be in order; what is not finite is left out.
pub fn min_max(points: &[(f64, f64)], columns: usize) -> Vec<(f64, f64)> {
    let finite = || points.iter().copied().filter(|point| point.0.is_finite() && point.1.is_finite());
    let columns = columns.max(1);
    if points.len() <= columns * 4 {
        return finite().collect();
    }
    let (Some(first), Some(last)) = (finite().next(), finite().next_back()) else { return Vec::new() };
    let width = (last.0 - first.0) / columns as f64;
    let column = |x: f64| if width > 0.0 { (((x - first.0) / width) as usize).min(columns - 1) } else { 0 };
    let mut kept = Vec::with_capacity(columns * 4);
    let mut stretch = None;
    for (index, point) in finite().enumerate() {
        let here = column(point.0);
        match &mut stretch {
            Some(open @ Stretch { .. }) if open.column == here => open.take_point(index, point),
            other => {
                other.take().into_iter().for_each(|done: Stretch| done.close_stretch(&mut kept));
                *other = Some(Stretch::new(here, index, point));
            }
        }
    }
    stretch.into_iter().for_each(|done| done.close_stretch(&mut kept));
    kept
}

/// The points of one column so far.
struct Stretch {
    column: usize,
    /// First, least, greatest and last, each with its index.
    ends: [(usize, (f64, f64)); 4],
}

impl Stretch {
    const fn new(column: usize, index: usize, point: (f64, f64)) -> Self {
        Self { column, ends: [(index, point); 4] }
    }

    fn take_point(&mut self, index: usize, point: (f64, f64)) {
        if point.1 < self.ends[1].1.1 {
            self.ends[1] = (index, point);
        }
        if point.1 > self.ends[2].1.1 {
            self.ends[2] = (index, point);
        }
        self.ends[3] = (index, point);
    }

    fn close_stretch(mut self, kept: &mut Vec<(f64, f64)>) {
        self.ends.sort_by_key(|end| end.0);
        let mut last = None;
        for (index, point) in self.ends {
            if last != Some(index) {
                kept.push(point);
            }
            last = Some(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_steps_cost_nothing_and_uneven_ones_are_kept() {
        let even = Series::of_points((0..100).map(|i| (f64::from(i) * 5.0, 1.0)));
        assert!(matches!(even.steps, Steps::Even { first: 0.0, stride: 5.0 }));
        let uneven = Series::of_points([(1.0, 0.0), (2.0, 1.0), (4.0, 2.0)]);
        assert_eq!(uneven.points().map(|point| point.0).collect::<Vec<_>>(), [1.0, 2.0, 4.0]);
        assert_eq!(
            (uneven.value_at(3.0), uneven.value_at(0.0), uneven.value_at(5.0), uneven.points_until(2.5)),
            (Some(1.5), Some(0.0), None, 2)
        );
        assert_eq!((even.points_until(12.0), even.value_at(12.0), even.sum()), (3, Some(1.0), 100.0));
    }

    #[test]
    fn a_resumed_run_replaces_what_it_does_again() {
        let mut series = Series::default();
        for (line, (step, value)) in
            [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (2.0, 20.0), (3.0, 30.0), (4.0, 40.0)].into_iter().enumerate()
        {
            series.push(step, value, line + 1);
        }
        assert_eq!(series.finish_points(), 2);
        assert_eq!(series.points().collect::<Vec<_>>(), [(1.0, 1.0), (2.0, 20.0), (3.0, 30.0), (4.0, 40.0)]);
        assert_eq!(series.lines, (1, 6));
    }

    #[test]
    fn a_million_points_keep_every_spike() {
        let mut points: Vec<(f64, f64)> = (0..1_000_000).map(|i| (f64::from(i), 0.0)).collect();
        for (n, spike) in [3, 77_777, 500_000, 999_998].into_iter().enumerate() {
            points[spike].1 = if n % 2 == 0 { 10.0 + n as f64 } else { -10.0 - n as f64 };
        }
        let kept = min_max(&points, 800);
        assert!(kept.len() <= 3_200 && kept.is_sorted_by(|a, b| a.0 < b.0), "{}", kept.len());
        for spike in [3, 77_777, 500_000, 999_998] {
            assert!(kept.contains(&points[spike]), "{spike}");
        }
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[999_999]));
    }

    #[test]
    fn a_thinned_series_keeps_its_sum_and_extremes() {
        let mut series = Series::of_points((0..10_000).map(|i| (f64::from(i), if i == 4_321 { 9.0 } else { 1.0 })));
        series.thin_out(256);
        assert!(series.len() <= 256 && series.values().contains(&9.0));
        assert_eq!((series.count(), series.sum()), (10_000, 10_008.0));
    }
}
