//! What a board looks like to programs and in plain text: JSON lines, CSV, Prometheus' text, a table without a screen.

mod csv;
mod json;
mod plain;
mod prometheus;

pub use csv::Csv;
pub(crate) use json::{alert_json, kind_word};
pub use json::{sample_json, sample_line, series_json};
pub use plain::plain_table;
pub(crate) use plain::process_label;
pub use prometheus::{MetricOptions, metrics_text};

/// Text for a terminal or a line: control characters, which could command the terminal, are shown as what they are.
pub fn printable_text(text: &str) -> String {
    let one = |character: char| match character {
        '\t' | '\n' | '\r' => ' ',
        character if character.is_control() || is_invisible(character) => char::REPLACEMENT_CHARACTER,
        character => character,
    };
    text.chars().map(one).collect()
}

/// JSON for a terminal too: what `printable` replaces is escaped, which says the same to whoever reads it.
pub(crate) fn escaped_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() || is_invisible(character) {
            // All of them are below U+10000, so one escape is enough.
            safe += &format!("\\u{:04x}", u32::from(character));
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Characters that turn the direction of text or have no width.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_commands_the_terminal() {
        let text = printable_text("a\u{1b}[2J\u{9b}31m\u{202e}b\n\tc\u{0}");
        assert_eq!(text, "a\u{fffd}[2J\u{fffd}31m\u{fffd}b  c\u{fffd}");
        let json = serde_json::json!({"name": "a\u{1b}\u{9b}\u{202e}é"});
        let escaped = escaped_json(&json.to_string());
        assert_eq!(escaped, r#"{"name":"a\u001b\u009b\u202eé"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), json);
    }
}
