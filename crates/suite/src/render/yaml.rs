//! YAML from JSON values: blocks, and texts quoted as JSON has them, which YAML 1.2 reads alike.

use serde_json::Value;

/// `value` in block style.
pub(super) fn yaml_document(value: &Value) -> String {
    let mut text = String::new();
    yaml_block(value, 0, &mut text);
    text
}

fn yaml_block(value: &Value, indent: usize, text: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                text.push_str(&format!("{pad}{}:", yaml_key(key)));
                yaml_below(value, indent + 2, text);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                text.push_str(&format!("{pad}-"));
                yaml_below(value, indent + 2, text);
            }
        }
        scalar => text.push_str(&format!("{pad}{scalar}\n")),
    }
}

fn yaml_below(value: &Value, indent: usize, text: &mut String) {
    match value {
        // Words of a command stand on one line.
        Value::Array(list) if list.iter().all(Value::is_string) => text.push_str(&format!(" {value}\n")),
        Value::Object(map) if map.is_empty() => text.push_str(" {}\n"),
        Value::Object(_) | Value::Array(_) => {
            text.push('\n');
            yaml_block(value, indent, text);
        }
        // A script, line by line.
        Value::String(lines) if lines.ends_with('\n') && is_printable(lines) => {
            text.push_str(" |\n");
            for line in lines.lines() {
                let pad = if line.is_empty() { String::new() } else { " ".repeat(indent) };
                text.push_str(&format!("{pad}{line}\n"));
            }
        }
        scalar => text.push_str(&format!(" {scalar}\n")),
    }
}

/// Whether a block can hold it as it is: no line that begins with a space, nothing that YAML forbids.
fn is_printable(lines: &str) -> bool {
    let is_allowed =
        |c: char| c == '\n' || (!c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{85}'));
    lines.chars().all(is_allowed) && !lines.starts_with([' ', '\n']) && !lines.ends_with("\n\n")
}

fn yaml_key(key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match !key.is_empty() && key.chars().all(is_plain) && key.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}
