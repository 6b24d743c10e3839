//! The report as one page: no script at all, nothing from elsewhere, and a policy that says so; every text is escaped.

use std::fmt::Write;

use crate::check::{Flag, Severity};
use crate::document::{Block, Document, Table};
use crate::figure::{draw_figure, escaped_text, scoped_style};

/// Longer tables are closed until they are asked for.
const LONG: usize = 30;

pub fn html(document: &Document) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{}{}</style>\n</head>\n<body>\n<header><h1>{title}</h1>",
        include_str!("page.css"),
        scoped_style("figure svg"),
        title = escaped_text(&document.title)
    );
    push_contents(document, &mut page);
    page.push_str("</header>\n<main>\n");
    let mut section = 0;
    for block in &document.blocks {
        match block {
            Block::Heading(title) => {
                section += 1;
                let _ = writeln!(page, "<h2 id=\"s{section}\">{}</h2>", escaped_text(title));
            }
            Block::Text(words) => page.push_str(&format!("<p>{}</p>\n", code_spans(words))),
            Block::List(points) => {
                page.push_str("<ul>\n");
                points.iter().for_each(|point| page.push_str(&format!("<li>{}</li>\n", code_spans(point))));
                page.push_str("</ul>\n");
            }
            Block::Flags(flags) => push_checks(flags, &mut page),
            Block::Table(table) => push_table(table, &mut page),
            Block::Figure(figure) => {
                let _ = writeln!(
                    page,
                    "<figure><h3>{}</h3>\n{}<figcaption>{}</figcaption></figure>",
                    escaped_text(&figure.title),
                    draw_figure(figure, None),
                    escaped_text(&figure.described)
                );
            }
            Block::Verbatim(lines) => page.push_str(&format!("<pre tabindex=\"0\">{}</pre>\n", escaped_text(lines))),
        }
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Text in which what stands between two backticks is a name.
fn code_spans(text: &str) -> String {
    let safe = escaped_text(text);
    let parts: Vec<&str> = safe.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return safe;
    }
    let part = |(index, part): (usize, &&str)| {
        if index % 2 == 1 { format!("<code>{part}</code>") } else { (*part).to_owned() }
    };
    parts.iter().enumerate().map(part).collect()
}

fn push_contents(document: &Document, page: &mut String) {
    page.push_str("<nav aria-label=\"Contents\">");
    let headings = document.blocks.iter().filter_map(|block| match block {
        Block::Heading(title) => Some(title),
        _ => None,
    });
    for (index, title) in headings.enumerate() {
        let _ = write!(page, "<a href=\"#s{}\">{}</a> ", index + 1, escaped_text(title));
    }
    page.push_str("</nav>");
}

fn push_checks(flags: &[Flag], page: &mut String) {
    if flags.is_empty() {
        page.push_str("<p class=\"good\">None of the checks found anything.</p>\n");
    }
    for flag in flags {
        let (class, how) = match flag.severity {
            Severity::Refutes => ("refutes", "No conclusion"),
            Severity::Warns => ("warns", "Warning"),
        };
        let _ = write!(
            page,
            "<div class=\"flag {class}\" role=\"note\"><b>{how}: {}</b><p>{}</p><ul>",
            flag.check,
            code_spans(&flag.said)
        );
        flag.evidence.iter().for_each(|line| page.push_str(&format!("<li>{}</li>", code_spans(line))));
        page.push_str("</ul></div>\n");
    }
}

fn push_table(table: &Table, page: &mut String) {
    let is_closed = table.rows.len() > LONG;
    let title = code_spans(&table.title);
    if is_closed {
        let _ = writeln!(page, "<details><summary>{title} ({} rows)</summary>", table.rows.len());
    } else {
        let _ = writeln!(page, "<h3>{title}</h3>");
    }
    page.push_str("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>");
    for (column, name) in table.columns.iter().enumerate() {
        let class = if table.rows.iter().any(|row| row[column].value.is_some()) { " class=\"n\"" } else { "" };
        page.push_str(&format!("<th scope=\"col\"{class}>{}</th>", escaped_text(name)));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for cell in row {
            let class = if cell.value.is_some() { " class=\"n\"" } else { "" };
            let _ = write!(page, "<td{class}>{}</td>", escaped_text(&cell.text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    if !table.note.is_empty() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", code_spans(&table.note));
    }
    if is_closed {
        page.push_str("</details>\n");
    }
}
