//! Every run in a line, for a spreadsheet or a notebook.

use crate::document::{Block, Document, Table};

/// The table of runs; empty where the report has none.
pub fn csv(document: &Document) -> String {
    let is_runs = |block: &Block| matches!(block, Block::Table(table) if table.name == "runs");
    let Some(Block::Table(table)) = document.blocks.iter().find(|block| is_runs(block)) else { return String::new() };
    table_rows(table)
}

fn table_rows(table: &Table) -> String {
    let mut text =
        table.columns.iter().map(|name| quoted_cell(&name.replace(' ', "_"))).collect::<Vec<_>>().join(",") + "\n";
    for row in &table.rows {
        let cells = row.iter().map(|one| {
            one.value
                .map_or_else(|| quoted_cell(if one.text == "-" { "" } else { &one.text }), |value| value.to_string())
        });
        text.push_str(&(cells.collect::<Vec<_>>().join(",") + "\n"));
    }
    text
}

/// A text as a cell; one that a spreadsheet would compute is marked as text.
fn quoted_cell(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r', ';']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_cell_is_computed() {
        assert_eq!(quoted_cell("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(
            (quoted_cell("a,b"), quoted_cell("say \"x\""), quoted_cell("plain")),
            ("\"a,b\"".to_owned(), "\"say \"\"x\"\"\"".to_owned(), "plain".to_owned())
        );
    }
}
