//! The report as JSON: blocks in order, tables as lists of objects with numbers where there are, and the words that are shown.

use serde_json::{Map, Value, json};

use crate::check::{Flag, Severity};
use crate::document::{Block, Document, Table};

/// Rises when a reader would misunderstand, not when something is added.
const VERSION: u32 = 1;

pub fn json(document: &Document) -> String {
    let blocks: Vec<Value> = document.blocks.iter().map(block_value).collect();
    format!("{:#}\n", json!({"version": VERSION, "title": document.title, "blocks": blocks}))
}

fn block_value(block: &Block) -> Value {
    match block {
        Block::Heading(title) => json!({"heading": title}),
        Block::Text(words) => json!({"text": words}),
        Block::List(points) => json!({"list": points}),
        Block::Flags(flags) => json!({"checks": flags.iter().map(flag_value).collect::<Vec<_>>()}),
        Block::Table(table) => table_value(table),
        Block::Figure(figure) => json!({"figure": figure.name, "title": figure.title, "described": figure.described}),
        Block::Verbatim(lines) => json!({"verbatim": lines}),
    }
}

fn flag_value(flag: &Flag) -> Value {
    let severity = match flag.severity {
        Severity::Refutes => "refutes",
        Severity::Warns => "warns",
    };
    json!({"check": flag.check, "severity": severity, "configurations": flag.configurations, "said": flag.said, "evidence": flag.evidence})
}

fn table_value(table: &Table) -> Value {
    let row = |cells: &Vec<crate::document::Cell>| {
        let mut row = Map::new();
        for (name, cell) in table.columns.iter().zip(cells) {
            row.insert(
                (*name).to_owned(),
                cell.value
                    .filter(|value| value.is_finite())
                    .map_or_else(|| json!(cell.text), |value| json!({"value": value, "shown": cell.text})),
            );
        }
        Value::Object(row)
    };
    json!({"table": table.name, "title": table.title, "note": table.note, "rows": table.rows.iter().map(row).collect::<Vec<_>>()})
}
