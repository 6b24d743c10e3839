//! Values of keys: one, or a list of them, and what they are as text.

use toml::Value;
use tonnage_core::job::JobError;

/// Keys with a value each.
pub type Settings = Vec<(String, Value)>;
/// Keys with the values that they take in turn.
pub type Axes = Vec<(String, Vec<Value>)>;

/// The keys of nested tables, joined by dots.
pub(crate) fn flatten_table(table: &toml::Table) -> Settings {
    fn below(table: &toml::Table, begin: &str, found: &mut Settings) {
        for (key, value) in table {
            match value {
                Value::Table(inner) => below(inner, &format!("{begin}{key}."), found),
                _ => found.push((format!("{begin}{key}"), value.clone())),
            }
        }
    }
    let mut found = Vec::new();
    below(table, "", &mut found);
    found
}

/// Every key with each value of its list, or its one.
pub(super) fn read_axes(table: &toml::Table) -> Axes {
    let values = |value: Value| match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    flatten_table(table).into_iter().map(|(key, value)| (key, values(value))).collect()
}

/// The key, if it has one value.
pub(super) fn check_value((key, value): (String, Value)) -> Result<(String, Value), JobError> {
    match value {
        Value::Array(_) => Err(JobError::new(format!("`{key}`: what all configurations share has one value"))
            .hint("put the list into a [[configuration]] or into [matrix]")),
        value => Ok((key, value)),
    }
}

/// A list of texts; numbers in it are texts as well.
pub(super) fn text_values(key: &str, value: &Value) -> Result<Vec<String>, JobError> {
    let words = value.as_array().map(|list| {
        list.iter().map(|word| match word {
            Value::String(text) => Some(text.clone()),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(word.to_string()),
            _ => None,
        })
    });
    let words =
        words.and_then(Iterator::collect::<Option<Vec<String>>>).filter(|words: &Vec<String>| !words.is_empty());
    words.ok_or_else(|| JobError::new(format!("`{key}` is a list of words: {key} = [\"python\", \"train.py\"]")))
}

/// The value as a command hears it.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value as a number, where it is one.
pub fn text_number(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
}
