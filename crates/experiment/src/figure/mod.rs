//! [`Figure`]: what is drawn, as marks over two axes; `svg` and `png` draw it, `curve` makes learning curves of runs.

mod curve;
mod font;
mod layout;
mod png;
mod scale;
mod svg;

pub use curve::{curve_figure, mean_curve};
pub use png::png;
pub use svg::{escaped_text, svg};

pub(crate) use svg::{draw_figure, scoped_style};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Its name in files.
    pub name: String,
    pub title: String,
    /// What it shows, for who does not see it.
    pub described: String,
    /// What x is.
    pub x: String,
    /// What y is.
    pub y: String,
    /// Whether x is drawn by its logarithm.
    pub log_x: bool,
    /// Names of rows of y, from the top; empty where y is a number.
    pub rows: Vec<String>,
    /// What is named in the legend, by colour.
    pub series: Vec<String>,
    /// What is drawn, the first below.
    pub marks: Vec<Mark>,
}

/// A mark; `series` chooses the colour.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are coordinates")]
pub enum Mark {
    /// A line through points.
    Line {
        series: usize,
        points: Vec<(f64, f64)>,
        is_thin: bool,
    },
    /// An area between two lines: x, low, high.
    Band {
        series: usize,
        points: Vec<(f64, f64, f64)>,
        is_faint: bool,
    },
    Dots {
        series: usize,
        points: Vec<(f64, f64)>,
        is_hollow: bool,
    },
    /// A horizontal interval with its middle.
    Interval {
        series: usize,
        y: f64,
        low: f64,
        middle: f64,
        high: f64,
    },
    /// A bar from zero.
    Bar {
        series: usize,
        from: f64,
        to: f64,
        height: f64,
    },
    /// The line of equal x and y.
    Identity,
    /// A vertical line.
    Vertical {
        x: f64,
    },
}

impl Mark {
    /// Calls `see` with the corners of what is drawn.
    fn corners(&self, see: &mut dyn FnMut(f64, f64)) {
        match self {
            Self::Line { points, .. } | Self::Dots { points, .. } => points.iter().for_each(|(x, y)| see(*x, *y)),
            Self::Band { points, .. } => points.iter().for_each(|(x, low, high)| {
                see(*x, *low);
                see(*x, *high);
            }),
            Self::Interval { y, low, middle, high, .. } => [*low, *middle, *high].into_iter().for_each(|x| see(x, *y)),
            Self::Bar { from, to, height, .. } => {
                see(*from, 0.0);
                see(*to, *height);
            }
            Self::Identity => {}
            Self::Vertical { x } => see(*x, f64::NAN),
        }
    }
}
