//! JSON: a table of keys, each with its line.

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::fmt;

use tonnage_core::job::{JobError, Place};

use super::{Lines, MAX_VALUES, said_twice, unreadable_file};
use crate::tree::{Entry, Node};

/// The keys of the object that `text` is.
///
/// # Errors
/// When it is no JSON, no object, or has a key twice.
pub fn read_json(name: &str, text: &str) -> Result<Vec<Entry>, JobError> {
    let lines = Lines::new(name, text);
    let state = State { lines, text, at: Cell::new(0), values: Cell::new(0), twice: RefCell::new(None) };
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = NodeSeed(&state).deserialize(&mut reader).and_then(|node| reader.end().map(|()| node));
    if let Some((key, place)) = state.twice.take() {
        return Err(said_twice(&key, Some(place), name));
    }
    match read {
        Ok(Node::Table(entries)) => Ok(entries),
        Ok(Node::Value(_)) => Err(unreadable_file(name, "a config is a table of keys", None)),
        Err(error) => {
            let place = Place { file: name.to_owned(), line: error.line().max(1), column: error.column().max(1) };
            let text = error.to_string();
            let problem = text.split(" at line").next().unwrap_or_default();
            Err(unreadable_file(name, format!("no JSON: {problem}"), Some(place)))
        }
    }
}

struct State<'a> {
    lines: Lines<'a>,
    text: &'a str,
    /// Where the last key was found; keys come in their order.
    at: Cell<usize>,
    values: Cell<usize>,
    twice: RefCell<Option<(String, Place)>>,
}

impl State<'_> {
    fn place(&self, key: &str) -> Place {
        let quoted = serde_json::to_string(key).unwrap_or_default();
        let from = self.at.get();
        let found = self.text.get(from..).and_then(|rest| rest.find(&quoted)).map_or(from, |at| from + at);
        self.at.set((found + quoted.len()).min(self.text.len()));
        self.lines.place(found)
    }
}

struct NodeSeed<'a>(&'a State<'a>);

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Node, D::Error> {
        self.0.values.set(self.0.values.get() + 1);
        if self.0.values.get() > MAX_VALUES {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Value(Value::Null))
    }

    fn visit_bool<E>(self, on: bool) -> Result<Node, E> {
        Ok(Node::Value(on.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Value(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Value(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Value(Number::from_f64(number).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Value(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(NodeSeed(self.0))? {
            list.push(item.value());
        }
        Ok(Node::Value(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let place = self.0.place(&key);
            if !seen.insert(key.clone()) {
                self.0.twice.replace(Some((key, place)));
                return Err(A::Error::custom("a key twice"));
            }
            let node = map.next_value_seed(NodeSeed(self.0))?;
            entries.push(Entry { key, place: Some(place), node });
        }
        Ok(Node::Table(entries))
    }
}

/// The object that a text may hold in quotes (`--model_init_kwargs '{"dtype": "bfloat16"}'`).
pub fn object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}
