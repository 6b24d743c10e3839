//! Where things stand in a figure, in pixels; shared by all that draws.

use super::scale::Scale;
use super::{Figure, Mark};

/// Names of rows are cut to so many letters.
const LONGEST_ROW: usize = 28;
/// Series in a legend; further ones are counted.
const MOST_NAMED: usize = 12;

/// A figure's measures.
pub(super) struct Layout<'a> {
    pub figure: &'a Figure,
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub x: Scale,
    pub y: Scale,
}

impl<'a> Layout<'a> {
    pub fn new(figure: &'a Figure) -> Self {
        let has_identity = figure.marks.contains(&Mark::Identity);
        let corners = |pick: fn(f64, f64) -> f64| {
            let mut values = Vec::new();
            figure.marks.iter().for_each(|mark| mark.corners(&mut |x, y| values.push(pick(x, y))));
            values
        };
        let (mut xs, mut ys) = (corners(|x, _| x), corners(|_, y| y));
        if has_identity {
            let all = [xs.as_slice(), &ys].concat();
            (xs, ys) = (all.clone(), all);
        }
        let rows = figure.rows.len();
        let y = match rows {
            0 => Scale::of_values(ys.into_iter(), false, 0.04),
            rows => Scale::of_values([-0.5, rows as f64 - 0.5].into_iter(), false, 0.0),
        };
        let longest = figure.rows.iter().map(|row| row.chars().count().min(LONGEST_ROW)).max().unwrap_or(7);
        let legend = figure.series.len().min(MOST_NAMED + 1).div_ceil(3) as f64 * 20.0;
        let top = if figure.series.is_empty() { 16.0 } else { 14.0 + legend };
        let height = if rows == 0 { 360.0 } else { 60.0 + 28.0 * rows as f64 } + top;
        let left = 20.0 + 7.2 * longest as f64;
        let x = Scale::of_values(xs.into_iter(), figure.log_x, 0.02);
        Self { figure, width: 760.0, height, left: left.max(64.0), right: 20.0, top, bottom: 46.0, x, y }
    }

    /// The pixel of a number of x.
    pub fn x_pixel(&self, x: f64) -> Option<f64> {
        Some(drawable_pixel(self.left + (self.width - self.left - self.right) * self.x.place_of(x)?))
    }

    /// The pixel of a number of y; rows go from the top.
    pub fn y_pixel(&self, y: f64) -> Option<f64> {
        let share = self.y.place_of(y)?;
        let share = if self.figure.rows.is_empty() { 1.0 - share } else { share };
        Some(drawable_pixel(self.top + (self.height - self.top - self.bottom) * share))
    }

    /// The pixels of a point.
    pub fn point_pixels(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.x_pixel(x)?, self.y_pixel(y)?))
    }

    /// Both ends of the line of equal x and y.
    pub fn identity_line(&self) -> Option<((f64, f64), (f64, f64))> {
        let ends: Vec<f64> = self.x.ticks(5).into_iter().map(|tick| tick.0).collect();
        let (low, high) = (*ends.first()?, *ends.last()?);
        Some((self.point_pixels((low, low))?, self.point_pixels((high, high))?))
    }

    /// The names of the legend with their places, and what is said of further ones.
    pub fn legend_places(&self) -> Vec<(f64, f64, usize, String)> {
        let column = (self.width - 40.0) / 3.0;
        let mut named: Vec<String> =
            self.figure.series.iter().take(MOST_NAMED).map(|name| cut_text(name, 32)).collect();
        let more = self.figure.series.len() - named.len();
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        let place = |(index, name)| (20.0 + column * (index % 3) as f64, 16.0 + 20.0 * (index / 3) as f64, index, name);
        named.into_iter().enumerate().map(place).collect()
    }

    /// The names of rows with their places.
    pub fn row_labels(&self) -> Vec<(f64, String)> {
        let place = |(index, name): (usize, &String)| Some((self.y_pixel(index as f64)?, cut_text(name, LONGEST_ROW)));
        self.figure.rows.iter().enumerate().filter_map(place).collect()
    }
}

/// A pixel that far outside is outside all the same.
const fn drawable_pixel(pixel: f64) -> f64 {
    pixel.clamp(-1e5, 1e5)
}

fn cut_text(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most - 1).chain(['…']).collect() }
}
