//! [`Entry`]: a key of a config with its value and its place, whatever format it was written in.

use serde_json::{Map, Value};
use tonnage_core::job::Place;

/// A key with what is written for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key, without those it stands below.
    pub key: String,
    /// Where the key stands; `None` of what was never a text.
    pub place: Option<Place>,
    /// What is written for it.
    pub node: Node,
}

/// A value, or a table of keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A text, number, truth value, list or nothing.
    Value(Value),
    /// Keys of its own, in their order.
    Table(Vec<Entry>),
}

impl Node {
    /// The value, a table as an object.
    pub fn value(&self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Table(entries) => {
                let entries = entries.iter().map(|entry| (entry.key.clone(), entry.node.value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    /// The node of a value without places.
    pub fn of_value(value: &Value, place: Option<&Place>) -> Self {
        match value {
            Value::Object(entries) => Self::Table(entries_of(entries, place)),
            other => Self::Value(other.clone()),
        }
    }
}

/// The entries of an object, all at `place`.
pub fn entries_of(object: &Map<String, Value>, place: Option<&Place>) -> Vec<Entry> {
    let entry = |(key, value): (&String, &Value)| Entry {
        key: key.clone(),
        place: place.cloned(),
        node: Node::of_value(value, place),
    };
    object.iter().map(entry).collect()
}

/// The entry called `key`, whether with `-` or `_`.
pub fn find_entry<'a>(entries: &'a [Entry], key: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| same_key(&entry.key, key))
}

/// Whether two keys differ in nothing but `-` and `_`.
pub fn same_key(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(one, other)| plain(one) == plain(other))
}

/// Whether a value switches something on.
pub fn is_on(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
        Value::String(text) => {
            !matches!(text.trim().to_lowercase().as_str(), "" | "false" | "no" | "off" | "0" | "none" | "null")
        }
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// Whether a value says that nothing is said.
pub fn is_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "none" | "None" | "null"),
        _ => false,
    }
}

/// A value as it would stand in a job file; texts without quotes.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
