//! The few text styles of the screens; each must read without colour too.

use anstyle::{AnsiColor, Style};
use tonnage_core::estimate::Fit;

/// Headings and the figure that matters.
pub(super) const BOLD: Style = Style::new().bold();
/// What explains, and may be skipped.
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const WARN: Style = AnsiColor::Yellow.on_default();

/// A command or a setting to copy.
pub(super) const FLAG: Style = AnsiColor::Cyan.on_default();
/// What went wrong.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();

/// The style of a verdict.
pub(super) const fn fit_style(fit: Fit) -> Style {
    match fit {
        Fit::Fits => AnsiColor::Green.on_default().bold(),
        Fit::Tight | Fit::NotKnown => AnsiColor::Yellow.on_default().bold(),
        Fit::DoesNotFit => BAD,
    }
}

/// `text` in `style`.
pub(crate) fn paint_text(style: Style, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{style}{text}{style:#}") }
}

/// `text` in lines of at most `width` columns, all but the first after `indent` spaces.
pub fn wrap_text(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split([' ', '\n', '\r', '\t']) {
        let length = visible_width(word);
        if column > 0 && indent + column + 1 + length > width {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += length;
    }
    wrapped
}

/// Columns that a word takes: escape sequences take none.
fn visible_width(word: &str) -> usize {
    let mut escaped = false;
    let shows = |c: &char| {
        let shown = !escaped && *c != '\u{1b}';
        escaped = if escaped { *c != 'm' } else { *c == '\u{1b}' };
        shown
    };
    word.chars().filter(shows).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_words_and_indents() {
        assert_eq!(wrap_text("one two three", 9, 2), "one two\n  three");
        assert_eq!(wrap_text("one", 2, 2), "one");
        assert_eq!(wrap_text("one\ntwo\rthree", 9, 2), "one two\n  three");
        assert_eq!(wrap_text("\u{1b}[1mone\u{1b}[0m two", 7, 0), "\u{1b}[1mone\u{1b}[0m two");
    }
}
