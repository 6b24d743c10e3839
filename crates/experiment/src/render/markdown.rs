//! The report as Markdown (GitHub's): headings, tables, lists; figures as links to files beside it, where there are.

use std::fmt::Write;

use crate::check::{Flag, Severity};
use crate::document::{Block, Document, Table};

/// The report; `figures` is the folder of the figures' files, as it is seen from the document.
pub fn markdown(document: &Document, figures: Option<&str>) -> String {
    let mut text = format!("# {}\n", plain_text(&document.title));
    for block in &document.blocks {
        text.push('\n');
        match block {
            Block::Heading(title) => text.push_str(&format!("## {}\n", plain_text(title))),
            Block::Text(words) => text.push_str(&format!("{}\n", plain_text(words))),
            Block::List(points) => points.iter().for_each(|point| text.push_str(&format!("- {}\n", plain_text(point)))),
            Block::Flags(flags) => push_checks(flags, &mut text),
            Block::Table(table) => push_table(table, &mut text),
            Block::Figure(figure) => {
                if let Some(folder) = figures {
                    let _ = writeln!(
                        text,
                        "![{}]({}/{}.svg)\n\n*{}*",
                        plain_text(&figure.title),
                        folder_link(folder),
                        figure.name,
                        plain_text(&figure.described)
                    );
                } else {
                    text.pop();
                }
            }
            Block::Verbatim(lines) => push_verbatim(lines, &mut text),
        }
    }
    text
}

/// Text in which nothing is markup.
fn plain_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => safe.extend(['\\', c]),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\'' | '"' => safe.push(c),
            c if c.is_whitespace() => safe.push(' '),
            c => safe.push_str(&crate::figure::escaped_text(c.encode_utf8(&mut [0; 4]))),
        }
    }
    safe
}

/// A folder's name as part of a link.
fn folder_link(folder: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let part = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    folder.bytes().map(part).collect()
}

/// Lines in a fence that is longer than any of theirs.
fn push_verbatim(lines: &str, text: &mut String) {
    let longest = lines.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(text, "{fence}\n{}\n{fence}", lines.trim_end());
}

fn push_checks(flags: &[Flag], text: &mut String) {
    if flags.is_empty() {
        text.push_str("None of the checks found anything.\n");
    }
    for flag in flags {
        let how = match flag.severity {
            Severity::Refutes => "NO CONCLUSION",
            Severity::Warns => "WARNING",
        };
        let _ = writeln!(text, "- **{how}, {}**: {}", flag.check, plain_text(&flag.said));
        flag.evidence.iter().for_each(|line| text.push_str(&format!("  - {}\n", plain_text(line))));
    }
}

fn push_table(table: &Table, text: &mut String) {
    const MOST_ROWS: usize = 200;
    let _ = writeln!(text, "**{}**\n", plain_text(&table.title));
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&row(table.columns.iter().map(|name| plain_text(name)).collect()));
    let is_number = |column: usize| table.rows.iter().any(|row| row[column].value.is_some());
    text.push_str(&format!(
        "|{}\n",
        (0..table.columns.len()).map(|column| if is_number(column) { "---:|" } else { "---|" }).collect::<String>()
    ));
    table
        .rows
        .iter()
        .take(MOST_ROWS)
        .for_each(|cells| text.push_str(&row(cells.iter().map(|cell| plain_text(&cell.text)).collect())));
    if table.rows.len() > MOST_ROWS {
        let _ = writeln!(text, "\nAnd {} more rows: --html, --csv.", table.rows.len() - MOST_ROWS);
    }
    if !table.note.is_empty() {
        let _ = writeln!(text, "\n{}", plain_text(&table.note));
    }
}
