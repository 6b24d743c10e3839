//! YAML: the first document of a text, anchors followed as far as the bounds go.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::Value;
use tonnage_core::job::{JobError, Place};

use super::{MAX_DEPTH, MAX_VALUES, read_scalar, said_twice, unreadable_file};
use crate::tree::{Entry, Node};

/// The keys of the table that `text` is.
///
/// # Errors
/// When it is no YAML, no table, or beyond the bounds.
pub fn read_yaml(name: &str, text: &str) -> Result<Vec<Entry>, JobError> {
    let mut reader = Reader { name, parser: Parser::new_from_str(text), anchors: HashMap::new(), values: 0 };
    reader.document()
}

struct Reader<'a> {
    name: &'a str,
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// What an anchor stands for, and how many values that is.
    anchors: HashMap<usize, (Node, usize)>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Vec<Entry>, JobError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Vec::new()),
                event => {
                    let place = self.place(&span);
                    return match self.node(event, &span, 0)? {
                        Node::Table(entries) => self.is_alone().map(|()| entries),
                        Node::Value(Value::Null) => Ok(Vec::new()),
                        Node::Value(_) => Err(unreadable_file(self.name, "a config is a table of keys", Some(place))),
                    };
                }
            }
        }
    }

    /// What stands in a second document would be dropped without a word.
    fn is_alone(&mut self) -> Result<(), JobError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) => {
                    let place = self.place(&span);
                    return Err(unreadable_file(
                        self.name,
                        "a second document begins here: a config is one",
                        Some(place),
                    ));
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), JobError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let marker = *error.marker();
                let place = Place { file: self.name.to_owned(), line: marker.line().max(1), column: marker.col() + 1 };
                Err(unreadable_file(self.name, format!("no YAML: {}", error.info()), Some(place)))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn place(&self, span: &Span) -> Place {
        Place { file: self.name.to_owned(), line: span.start.line().max(1), column: span.start.col() + 1 }
    }

    fn count(&mut self, values: usize, span: &Span) -> Result<(), JobError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            let problem = format!("more than {MAX_VALUES} values, aliases counted as often as they are used");
            return Err(unreadable_file(self.name, problem, Some(self.place(span))));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, JobError> {
        if depth > MAX_DEPTH {
            let problem = format!("more than {MAX_DEPTH} tables or lists in one another");
            return Err(unreadable_file(self.name, problem, Some(self.place(span))));
        }
        let before = self.values;
        self.count(1, span)?;
        let (anchor, node) = match event {
            Event::Alias(id) => {
                let Some((node, values)) = self.anchors.get(&id).cloned() else {
                    return Err(unreadable_file(self.name, "an alias of nothing", Some(self.place(span))));
                };
                self.count(values, span)?;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.suffix == "str") || style != ScalarStyle::Plain;
                (anchor, Node::Value(if is_text { Value::String(text.into_owned()) } else { read_scalar(&text) }))
            }
            Event::SequenceStart(anchor, _) => (anchor, Node::Value(self.list(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, Node::Table(self.table(depth)?)),
            _ => return Err(unreadable_file(self.name, "no value where one belongs", Some(self.place(span)))),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.values - before));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, JobError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::SequenceEnd => return Ok(Value::Array(items)),
                event => items.push(self.node(event, &span, depth + 1)?.value()),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<Vec<Entry>, JobError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged: Vec<Entry> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let (event, span) = self.next()?;
            let key: Cow<'_, str> = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, ..) => text,
                _ => return Err(unreadable_file(self.name, "a key must be a text", Some(self.place(&span)))),
            };
            let place = self.place(&span);
            let (event, span) = self.next()?;
            let node = self.node(event, &span, depth + 1)?;
            match node {
                Node::Table(below) if key == "<<" => merged.extend(below),
                node if seen.insert(key.clone().into_owned()) => {
                    entries.push(Entry { key: key.into_owned(), place: Some(place), node });
                }
                _ => return Err(said_twice(&key, Some(place), self.name)),
            }
        }
        // A table's own keys win over those that it merges.
        entries.extend(merged.into_iter().filter(|entry| seen.insert(entry.key.clone())));
        Ok(entries)
    }
}
