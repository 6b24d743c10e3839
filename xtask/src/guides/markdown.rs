//! The pieces of a Markdown document: tables, commands, sizes.

use tonnage_core::units::Bytes;

/// A table; a cell is text as it stands.
pub fn markdown_table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&head.map(str::to_owned));
    text.push_str(&format!("|{}\n", "---|".repeat(N)));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text.push('\n');
    text
}

/// A line that says how to see our figures: the command, and those of the table that it prints. `cargo xtask guides
/// --commands` runs it and looks for them.
pub fn see_command(command: &str, prints: &[String]) -> String {
    format!("→ `{command}` prints {}\n\n", prints.join("; "))
}

/// Bytes as a document shows them.
pub fn size_text(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// The same in the guides' GB of 10^9 bytes.
pub fn gb_text(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// A share as whole percent.
pub fn percent_text(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 / whole.max(1) as f64 * 100.0)
}

/// By how many percent `after` is above or below `before`.
pub fn change_text(before: u64, after: u64) -> String {
    format!("{:+.0} %", (after as f64 / before.max(1) as f64 - 1.0) * 100.0)
}

/// Dollars as the command line prints them.
pub fn dollar_text(amount: f64) -> String {
    if amount < 1000.0 {
        return format!("${amount:.2}");
    }
    let digits = format!("{amount:.0}");
    let group = |(at, digit): (usize, char)| match at > 0 && (digits.len() - at).is_multiple_of(3) {
        true => format!(",{digit}"),
        false => digit.to_string(),
    };
    format!("${}", digits.chars().enumerate().map(group).collect::<String>())
}
