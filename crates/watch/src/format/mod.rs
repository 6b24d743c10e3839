//! What a board looks like to programs and in plain text: JSON lines, CSV, Prometheus' text, a table without a screen.

mod csv;
mod json;
mod plain;
mod prometheus;

pub use csv::Csv;
pub(crate) use json::{alert_json, kind_word};
pub use json::{sample_json, series_json};
pub use plain::plain;
pub(crate) use plain::who;
pub use prometheus::{MetricOptions, metrics};

/// Text for a terminal or a line: control characters, which could command the terminal, are shown as what they are.
pub fn printable(text: &str) -> String {
    let one = |character: char| match character {
        '\t' | '\n' | '\r' => ' ',
        character if character.is_control() || is_invisible(character) => char::REPLACEMENT_CHARACTER,
        character => character,
    };
    text.chars().map(one).collect()
}

/// Characters that turn the direction of text or have no width.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_commands_the_terminal() {
        let text = printable("a\u{1b}[2J\u{9b}31m\u{202e}b\n\tc\u{0}");
        assert_eq!(text, "a\u{fffd}[2J\u{fffd}31m\u{fffd}b  c\u{fffd}");
    }
}
