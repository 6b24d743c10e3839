//! What values a key takes: checking one, reading one from a flag's text, and describing them to people and schemas.

use serde_json::{Value, json};

use crate::nearest::nearest;

/// The values a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number from `min` to `max`.
    Size {
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// A number from `min` to `max`.
    Number {
        /// The least value.
        min: f64,
        /// The greatest value.
        max: f64,
    },
    /// `true` or `false`.
    Switch,
    /// One of these words, each with what it means; `-` and `_` are the same.
    Choice(&'static [(&'static str, &'static str)]),
    /// Text as it stands.
    Text,
    /// A text or a number, kept as text.
    TextOrNumber,
    /// A list of texts, or a single one.
    Texts,
}

/// Why a value does not suit a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KindError {
    /// What it must be and what it is, to follow the key's name.
    pub problem: String,
    /// The word that was most likely meant.
    pub meant: Option<&'static str>,
}

impl Kind {
    /// The value in its one canonical form.
    pub(super) fn check(&self, value: &Value) -> Result<Value, KindError> {
        let checked = match self {
            Self::Size { min, max } => value.as_u64().filter(|n| (*min..=*max).contains(n)).map(Value::from),
            Self::Number { min, max } => value.as_f64().filter(|n| (*min..=*max).contains(n)).map(Value::from),
            Self::Switch => value.as_bool().map(Value::from),
            Self::Choice(choices) => value.as_str().and_then(|word| find_choice(choices, word)).map(Value::from),
            Self::Text => value.as_str().filter(|text| !text.is_empty()).map(Value::from),
            Self::TextOrNumber if value.is_number() => Some(Value::from(value.to_string())),
            Self::TextOrNumber => value.as_str().filter(|text| !text.is_empty()).map(Value::from),
            Self::Texts => json_texts(value),
        };
        checked.ok_or_else(|| KindError {
            problem: format!("must be {}, found {}", self.describe(), brief_text(value)),
            meant: self.meant(value),
        })
    }

    /// The value that a flag's text writes; text of the wrong form stays text, for `check` to refuse.
    pub(super) fn parse_text(&self, text: &str) -> Value {
        let text = text.trim();
        let read = match self {
            Self::Size { .. } => text.replace('_', "").parse::<u64>().ok().map(Value::from),
            Self::Number { .. } => text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from),
            Self::Switch => parse_switch(text).map(Value::from),
            Self::Texts => Some(text.trim_matches(['[', ']']).split(',').map(unquoted_value).collect()),
            Self::Choice(_) | Self::Text | Self::TextOrNumber => None,
        };
        read.unwrap_or_else(|| text.into())
    }

    /// What the value must be, in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Size { min, max } => format!("a whole number from {min} to {max}"),
            Self::Number { min, max } if *max >= f64::MAX => format!("a number, {min} or more"),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Switch => "true or false".to_owned(),
            Self::Choice(choices) => {
                format!("one of {}", choices.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", "))
            }
            Self::Text => "a text in quotes".to_owned(),
            Self::TextOrNumber => "a text or a number".to_owned(),
            Self::Texts => "a list of texts".to_owned(),
        }
    }

    /// The value's place holder in a command's help.
    pub const fn value_name(&self) -> &'static str {
        match self {
            Self::Size { .. } => "N",
            Self::Number { .. } => "X",
            Self::Switch => "BOOL",
            Self::Choice(_) => "NAME",
            Self::Text | Self::TextOrNumber => "TEXT",
            Self::Texts => "LIST",
        }
    }

    /// The values as a JSON schema.
    pub(super) fn schema(&self) -> Value {
        match self {
            Self::Size { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::Number { min, max } if *max >= f64::MAX => json!({"type": "number", "minimum": min}),
            Self::Number { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
            Self::Switch => json!({"type": "boolean"}),
            Self::Choice(choices) => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                json!({"type": "string", "enum": words})
            }
            Self::Text => json!({"type": "string", "minLength": 1}),
            Self::TextOrNumber => json!({"type": ["string", "number"]}),
            Self::Texts => {
                json!({"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string"}]})
            }
        }
    }

    fn meant(&self, value: &Value) -> Option<&'static str> {
        let Self::Choice(choices) = self else { return None };
        nearest(value.as_str()?, choices.iter().map(|(word, _)| *word))
    }
}

fn find_choice(choices: &[(&'static str, &'static str)], word: &str) -> Option<&'static str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    choices.iter().map(|(canonical, _)| *canonical).find(|canonical| plain(canonical) == plain(word))
}

fn json_texts(value: &Value) -> Option<Value> {
    let items = match value {
        Value::String(_) => vec![value.clone()],
        Value::Array(items) => items.clone(),
        _ => return None,
    };
    let good = |item: &Value| item.as_str().is_some_and(|text| !text.is_empty());
    (!items.is_empty() && items.iter().all(good)).then_some(Value::Array(items))
}

fn parse_switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" => Some(true),
        "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

fn unquoted_value(item: &str) -> Value {
    item.trim().trim_matches(['"', '\'']).into()
}

/// A value as JSON, cut where it would flood the message.
pub(super) fn brief_text(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRECISION: Kind = Kind::Choice(&[("bf16", ""), ("amp-bf16", "")]);

    #[test]
    fn reads_flags_texts() {
        let cases = [
            (Kind::Size { min: 1, max: 9_999 }, "1_024", json!(1024)),
            (Kind::Number { min: 0.0, max: 1.0 }, "0.5", json!(0.5)),
            (Kind::Switch, "off", json!(false)),
            (Kind::Texts, "q_proj, v_proj", json!(["q_proj", "v_proj"])),
            (Kind::Texts, "[\"q_proj\"]", json!(["q_proj"])),
            (PRECISION, "AMP_bf16", json!("amp-bf16")),
            (Kind::TextOrNumber, "4", json!("4")),
        ];
        for (kind, text, value) in cases {
            assert_eq!(kind.check(&kind.parse_text(text)), Ok(value), "{text}");
        }
    }

    #[test]
    fn says_what_a_value_must_be() {
        let cases = [
            (Kind::Size { min: 1, max: 8 }, json!(0), "must be a whole number from 1 to 8, found 0", None),
            (Kind::Size { min: 1, max: 8 }, json!("two"), "must be a whole number from 1 to 8, found \"two\"", None),
            (Kind::Number { min: 0.0, max: 1.0 }, json!(2), "must be a number from 0 to 1, found 2", None),
            (Kind::Switch, json!(1), "must be true or false, found 1", None),
            (PRECISION, json!("bf61"), "must be one of bf16, amp-bf16, found \"bf61\"", Some("bf16")),
            (Kind::Texts, json!([1]), "must be a list of texts, found [1]", None),
            (Kind::Text, json!(""), "must be a text in quotes, found \"\"", None),
        ];
        for (kind, value, problem, meant) in cases {
            let error = kind.check(&value).unwrap_err();
            assert_eq!((error.problem.as_str(), error.meant), (problem, meant));
        }
    }
}
