//! [`Document`]: a report before it is rendered. Every renderer shows the same blocks; none computes anything.

use crate::check::Flag;
use crate::figure::Figure;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    pub title: String,
    /// What it says, in order.
    pub blocks: Vec<Block>,
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A heading of a section.
    Heading(String),
    Text(String),
    /// Paragraphs that are points of a list.
    List(Vec<String>),
    /// What signal checks found; none is said too.
    Flags(Vec<Flag>),
    Table(Table),
    Figure(Box<Figure>),
    /// Text as it stands in a file.
    Verbatim(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its name in JSON and in names of files.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    pub columns: Vec<&'static str>,
    /// Rows, as many cells as headings.
    pub rows: Vec<Vec<Cell>>,
    /// What must be known to read it.
    pub note: String,
    /// Whether it is for the page and for files only: too long for a terminal.
    pub is_long: bool,
}

/// A cell: what is shown, and the number behind it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What is shown.
    pub text: String,
    /// The number, with all its digits.
    pub value: Option<f64>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, value: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// A number, shown with the digits that count.
    pub fn number(value: f64) -> Self {
        Self { text: crate::check::number_text(value), value: Some(value) }
    }

    /// A whole number.
    pub fn count(value: usize) -> Self {
        Self { text: value.to_string(), value: Some(value as f64) }
    }

    /// A number that may be missing.
    pub fn maybe(value: Option<f64>) -> Self {
        value.filter(|value| !value.is_nan()).map_or_else(|| "-".into(), Self::number)
    }

    pub fn p(value: Option<f64>) -> Self {
        let text = |p: f64| if p < 0.0001 { "<0.0001".to_owned() } else { format!("{p:.4}") };
        value.map_or_else(|| "-".into(), |p| Self { text: text(p), value: Some(p) })
    }

    /// A number with its interval.
    pub fn with_interval(value: f64, interval: Option<[f64; 2]>) -> Self {
        let number = crate::check::number_text;
        let text = match interval {
            Some([low, high]) => format!("{} [{}, {}]", number(value), number(low), number(high)),
            None => format!("{} [not known]", number(value)),
        };
        Self { text, value: Some(value) }
    }

    /// A share in per cent.
    pub fn percent(value: Option<f64>) -> Self {
        value.map_or_else(|| "-".into(), |share| Self { text: format!("{:.1} %", share * 100.0), value: Some(share) })
    }

    /// Bytes in GiB.
    pub fn bytes(value: Option<u64>) -> Self {
        let text = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
        value.map_or_else(|| "-".into(), |bytes| Self { text: text(bytes), value: Some(bytes as f64) })
    }
}
