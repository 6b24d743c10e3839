//! Columns that line up and fit: flexible columns give way when the terminal is narrow.

use anstyle::Style;

use super::paint::{DIM, paint_text, wrap_text};
use crate::look::Look;

/// Where a column's text stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left.
    Left,
    /// At the right, as numbers.
    Right,
}

/// A text with a style.
#[derive(Clone)]
pub struct Cell {
    pub text: String,
    pub style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

/// A cell in a style.
pub(super) fn styled_cell(text: impl Into<String>, style: Style) -> Cell {
    Cell { text: text.into(), style }
}

/// Rows under headings.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<Cell>>,
    flexible: Vec<usize>,
    wraps: bool,
    indent: usize,
}

const GAP: &str = "  ";
/// A flexible column never gets narrower.
const LEAST: usize = 12;
/// Nor does a last column whose text goes on below.
const LEAST_WRAPPED: usize = 24;

impl Table {
    /// Under these headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(title, align)| ((*title).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new(), flexible: Vec::new(), wraps: false, indent: 2 }
    }

    /// Lets the column at `index` be cut; the first one named gives way first.
    pub fn flexible(mut self, index: usize) -> Self {
        self.flexible.push(index);
        self
    }

    /// Lets the text of the last column go on below, before any column is cut.
    pub fn wrapped(mut self) -> Self {
        self.wraps = true;
        self
    }

    /// Adds a row, a cell a heading.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The text, in the columns that there are.
    pub fn render(&self, look: &Look) -> String {
        let widths = self.column_widths(look.width);
        if self.indent + widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1) > look.width {
            return self.stacked_rows(look);
        }
        let mut text = String::new();
        if self.columns.iter().any(|(title, _)| !title.is_empty()) {
            let titles: Vec<_> = self.columns.iter().map(|(title, _)| styled_cell(title.as_str(), DIM)).collect();
            text.push_str(&self.row_line(&titles, &widths, look));
        }
        for row in &self.rows {
            self.cell_lines(row, &widths).iter().for_each(|cells| text.push_str(&self.row_line(cells, &widths, look)));
        }
        text
    }

    /// Where the columns have no room beside each other: a row's first texts, and the others below with their titles.
    fn stacked_rows(&self, look: &Look) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let parts = self.columns.iter().zip(row).filter(|(_, cell)| !cell.text.is_empty());
            let part = |((title, _), cell): (&(String, Align), &Cell)| match title.is_empty() {
                true => paint_text(cell.style, &cell.text),
                false => format!("{} {}", paint_text(DIM, title), paint_text(cell.style, &cell.text)),
            };
            let line = parts.map(part).collect::<Vec<_>>().join(GAP);
            let (indent, hanging) = (" ".repeat(self.indent), self.indent + 2);
            text.push_str(&format!("{indent}{}\n", wrap_text(&line, look.width.saturating_sub(self.indent), hanging)));
        }
        text
    }

    /// The row, and what of its last cell goes on below.
    fn cell_lines(&self, row: &[Cell], widths: &[usize]) -> Vec<Vec<Cell>> {
        let (Some((last, others)), Some(width)) = (row.split_last(), widths.last()) else { return vec![row.to_vec()] };
        if !self.wraps {
            return vec![row.to_vec()];
        }
        let parts = wrapped_lines(&last.text, *width).into_iter().enumerate();
        let line = |(index, part)| {
            let others = others.iter().map(|other| if index == 0 { other.clone() } else { "".into() });
            others.chain([styled_cell(part, last.style)]).collect()
        };
        parts.map(line).collect()
    }

    fn column_widths(&self, width: usize) -> Vec<usize> {
        let longest = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.chars().count());
            cells.chain([self.columns[index].0.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<_> = (0..self.columns.len()).map(longest).collect();
        let total = self.indent + widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        let mut excess = total.saturating_sub(width);
        let wrapping = self.wraps.then(|| (widths.len() - 1, LEAST_WRAPPED));
        for (index, least) in wrapping.into_iter().chain(self.flexible.iter().map(|index| (*index, LEAST))) {
            // A title that is cut says nothing.
            let least = least.max(self.columns[index].0.chars().count());
            let narrowed = widths[index].saturating_sub(excess).max(least.min(widths[index]));
            excess -= widths[index] - narrowed;
            widths[index] = narrowed;
        }
        widths
    }

    fn row_line(&self, cells: &[Cell], widths: &[usize], look: &Look) -> String {
        let mut line = " ".repeat(self.indent);
        let last = cells.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |index| index + 1);
        for (index, cell) in cells.iter().enumerate().take(last) {
            let shown = cut_text(&cell.text, widths[index], look);
            let padding = " ".repeat(widths[index].saturating_sub(shown.chars().count()));
            let gap = if index == 0 { "" } else { GAP };
            let painted = paint_text(cell.style, &shown);
            match self.columns[index].1 {
                Align::Left if index + 1 == last => line.push_str(&format!("{gap}{painted}")),
                Align::Left => line.push_str(&format!("{gap}{painted}{padding}")),
                Align::Right => line.push_str(&format!("{gap}{padding}{painted}")),
            }
        }
        line.push('\n');
        line
    }
}

/// The words of `text` in lines of at most `width` columns; a longer word is a line of its own.
fn wrapped_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if !line.is_empty() && line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(line) if line.is_empty() => line.push_str(word),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `text` in at most `width` columns; its end is kept, for that is where paths differ, but of a command its beginning.
fn cut_text(text: &str, width: usize, look: &Look) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let mark = look.pick("…", "~");
    if text.contains(' ') {
        return text.chars().take(width.saturating_sub(1)).collect::<String>() + mark;
    }
    let kept: String = text.chars().skip(length - width.saturating_sub(1)).collect();
    format!("{mark}{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_goes_on_below() {
        let mut table = Table::new(&[("key", Align::Left), ("origin", Align::Left)]).wrapped();
        table.row(vec!["steps".into(), "the state appears in step 1, the peak in step 2".into()]);
        let text = table.render(&Look { width: 36, unicode: true });
        let plain = text.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        let expected = ["  key    origin", "  steps  the state appears in step", "         1, the peak in step 2"];
        assert_eq!(plain.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn columns_line_up_and_the_flexible_one_gives_way() {
        let mut table = Table::new(&[("name", Align::Left), ("size", Align::Right), ("", Align::Left)]).flexible(0);
        table.row(vec!["transformer.h.11.mlp.c_fc".into(), "9 B".into(), "x".into()]);
        table.row(vec!["lm_head".into(), "10 B".into(), "".into()]);
        let text = table.render(&Look { width: 30, unicode: true });
        let plain = text.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        let expected = ["  name                 size", "  …rmer.h.11.mlp.c_fc   9 B  x", "  lm_head              10 B"];
        assert_eq!(plain.lines().collect::<Vec<_>>(), expected);
    }
}
