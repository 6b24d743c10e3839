//! TOML: tables of keys with their places.

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use tonnage_core::job::{JobError, Place};
use tonnage_core::small_sort::SmallSort;

use super::{Lines, MAX_DEPTH, unreadable_file};
use crate::tree::{Entry, Node};

/// The keys of `text`.
///
/// # Errors
/// When it is no TOML.
pub fn read_toml(name: &str, text: &str) -> Result<Vec<Entry>, JobError> {
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().map(|span| Place::of_offset(name, text, span.start));
        unreadable_file(name, format!("no TOML: {}", error.message()), place)
    })?;
    table_entries(name, &Lines::new(name, text), table.get_ref(), 0)
}

fn table_entries(name: &str, lines: &Lines<'_>, table: &DeTable<'_>, depth: usize) -> Result<Vec<Entry>, JobError> {
    let mut entries = Vec::new();
    for (key, value) in table {
        let place = Some(lines.place(key.span().start));
        if depth > MAX_DEPTH {
            return Err(unreadable_file(name, format!("more than {MAX_DEPTH} tables in one another"), place));
        }
        let node = match value.get_ref() {
            DeValue::Table(below) => Node::Table(table_entries(name, lines, below, depth + 1)?),
            _ => Node::Value(as_json(value)),
        };
        entries.push(Entry { key: key.get_ref().to_string(), place, node });
    }
    // Tables come sorted; people read them in the order of the file.
    entries.small_sort_by_key(|entry| entry.place.as_ref().map(|place| (place.line, place.column)));
    Ok(entries)
}

fn as_json(value: &Spanned<DeValue<'_>>) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(on) => Value::Bool(*on),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => number.into(),
            Err(_) => Value::String(integer.to_string()),
        },
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(Number::from_f64);
            number.map_or_else(|| Value::String(float.to_string()), Value::Number)
        }
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => items.iter().map(as_json).collect(),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), as_json(value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}
