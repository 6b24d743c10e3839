//! Keyword arguments of calls in Python source (`SFTConfig(max_length=2048, ...)`): literals are read, nothing is executed.

use serde_json::{Map, Value};
use tonnage_core::job::{JobError, Place};

use super::{Lines, MAX_DEPTH, MAX_VALUES, unreadable_file};
use crate::tree::{Entry, Node};

/// A call with its keywords.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What is called, without what stands before the last dots but one: `FastLanguageModel.from_pretrained`.
    pub function: String,
    /// Where the call begins.
    pub place: Place,
    /// Keyword arguments in the order of the call.
    pub keywords: Vec<Entry>,
}

/// The calls of `text`, a script or a notebook, whose function `is_wanted`.
///
/// # Errors
/// When it is a notebook that cannot be read, or beyond the bounds.
pub fn read_python(name: &str, text: &str, is_wanted: fn(&str) -> bool) -> Result<Vec<Call>, JobError> {
    if name.to_lowercase().ends_with(".ipynb") {
        let source = notebook_code(name, text)?;
        return read_calls(name, &source, is_wanted);
    }
    read_calls(name, text, is_wanted)
}

/// The code of a notebook.
fn notebook_code(name: &str, text: &str) -> Result<String, JobError> {
    let notebook: Value =
        serde_json::from_str(text).map_err(|error| unreadable_file(name, format!("no notebook: {error}"), None))?;
    let cells = notebook.get("cells").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let code = cells.iter().filter(|cell| cell.get("cell_type").and_then(Value::as_str) == Some("code"));
    let source = |cell: &Value| match cell.get("source") {
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect::<String>(),
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    Ok(code.map(source).collect::<Vec<_>>().join("\n"))
}

/// How deep calls that are read stand within one another: each is gone through once more for those within it.
const MAX_CALLS: usize = 8;

fn read_calls(name: &str, text: &str, is_wanted: fn(&str) -> bool) -> Result<Vec<Call>, JobError> {
    let mut reader = Reader { name, text, lines: Lines::new(name, text), at: 0, names: Vec::new(), values: 0 };
    let mut calls = Vec::new();
    // Where the calls end that are being read: what is within them may be wanted too (`SFTTrainer(args=SFTConfig(...))`).
    let mut ends: Vec<usize> = Vec::new();
    while reader.at < text.len() {
        let begin = reader.at;
        ends.retain(|end| begin < *end);
        match reader.peek() {
            Some('#') => reader.line(),
            Some('"' | '\'') => drop(reader.string()),
            Some(c) if c.is_alphabetic() || c == '_' => {
                let path = reader.path();
                let function = last_two(&path);
                reader.spaces();
                if reader.peek() == Some('(') && is_wanted(&function) {
                    let place = reader.lines.place(begin);
                    if ends.len() > MAX_CALLS {
                        return Err(unreadable_file(name, "calls nested too deep", Some(place)));
                    }
                    let within = reader.at + 1;
                    let keywords = reader.keywords()?;
                    ends.push(reader.at);
                    reader.at = within;
                    calls.push(Call { function, place, keywords });
                } else if ends.is_empty()
                    && reader.peek() == Some('=')
                    && !text[reader.at..].starts_with("==")
                    && !path.contains('.')
                {
                    reader.assignment(path, is_wanted)?;
                }
            }
            _ => reader.step(),
        }
    }
    Ok(calls)
}

fn last_two(path: &str) -> String {
    let mut parts: Vec<&str> = path.rsplit('.').take(2).collect();
    parts.reverse();
    parts.join(".")
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    lines: Lines<'a>,
    at: usize,
    /// Names that were given a literal.
    names: Vec<(String, Value)>,
    values: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn step(&mut self) {
        self.at += self.peek().map_or(1, char::len_utf8);
    }

    fn line(&mut self) {
        self.at = self.text[self.at..].find('\n').map_or(self.text.len(), |end| self.at + end);
    }

    /// Spaces, comments and line ends.
    fn spaces(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                '#' => self.line(),
                '\\' => self.step(),
                c if c.is_whitespace() => self.step(),
                _ => return,
            }
        }
    }

    /// A name, with dots.
    fn path(&mut self) -> String {
        let begin = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            self.step();
        }
        self.text[begin..self.at].to_owned()
    }

    /// `name = literal`: remembered, for keywords that name it.
    fn assignment(&mut self, name: String, is_wanted: fn(&str) -> bool) -> Result<(), JobError> {
        self.step();
        let from = self.at;
        self.spaces();
        let is_name = self.peek().is_some_and(|c| c.is_alphabetic() || c == '_');
        if is_name {
            let begin = self.at;
            let path = self.path();
            self.at = begin;
            if is_wanted(&last_two(&path)) {
                return Ok(());
            }
        }
        let value = self.value(0)?;
        let is_literal = !is_name || value.is_boolean() || value.is_null();
        if is_literal && self.names.len() < 10_000 {
            self.names.retain(|(known, _)| *known != name);
            self.names.push((name, value));
        }
        // What the value holds may be a call that is wanted.
        self.at = from;
        Ok(())
    }

    fn keywords(&mut self) -> Result<Vec<Entry>, JobError> {
        let mut entries: Vec<Entry> = Vec::new();
        self.step();
        let mut positional = 0;
        loop {
            self.spaces();
            match self.peek() {
                None => return Ok(entries),
                Some(')') => {
                    self.step();
                    return Ok(entries);
                }
                // A bracket that nothing opened is passed over: no value begins with it.
                Some(',' | ']' | '}') => self.step(),
                Some(c) => {
                    let begin = self.at;
                    let place = self.lines.place(begin);
                    let key = if c.is_alphabetic() || c == '_' { self.path() } else { String::new() };
                    self.spaces();
                    let is_keyword =
                        !key.is_empty() && self.peek() == Some('=') && !self.text[self.at..].starts_with("==");
                    let key = if is_keyword {
                        self.step();
                        key
                    } else {
                        self.at = begin;
                        positional += 1;
                        format!("argument {positional}")
                    };
                    let value = self.value(0)?;
                    if entries.iter().any(|entry| entry.key == key) {
                        return Err(super::said_twice(&key, Some(place), self.name));
                    }
                    entries.push(Entry { key, node: Node::of_value(&value, Some(&place)), place: Some(place) });
                }
            }
        }
    }

    /// A literal; an expression as its text.
    fn value(&mut self, depth: usize) -> Result<Value, JobError> {
        self.values += 1;
        if depth > MAX_DEPTH || self.values > MAX_VALUES {
            let place = self.lines.place(self.at);
            return Err(unreadable_file(self.name, "lists or calls nested too deep, or too many", Some(place)));
        }
        self.spaces();
        let begin = self.at;
        let literal = match self.peek() {
            Some('"' | '\'') => self.string().map(Value::String),
            Some('[') => self.list(depth, ']')?,
            Some('(') => self.list(depth, ')')?,
            Some('{') => self.dictionary(depth)?,
            _ => None,
        };
        self.spaces();
        if let (Some(literal), None | Some(',' | ')' | ']' | '}' | '\n')) = (&literal, self.peek()) {
            return Ok(literal.clone());
        }
        if let Some(literal) = literal.filter(|_| depth == 0 && self.ends_the_line(begin)) {
            return Ok(literal);
        }
        self.at = begin;
        Ok(self.expression())
    }

    /// Whether a line ended between `begin` and here: what follows is another statement.
    fn ends_the_line(&self, begin: usize) -> bool {
        let before = self.text[begin..self.at].trim_end_matches(|c: char| c.is_whitespace() && c != '\n');
        before.ends_with('\n')
    }

    /// The text up to the next comma or bracket outside brackets.
    fn expression(&mut self) -> Value {
        let begin = self.at;
        let mut open = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                '#' => {
                    if open == 0 {
                        break;
                    }
                    self.line();
                }
                '"' | '\'' => drop(self.string()),
                '(' | '[' | '{' => {
                    open += 1;
                    self.step();
                }
                ')' | ']' | '}' if open == 0 => break,
                ')' | ']' | '}' => {
                    open -= 1;
                    self.step();
                }
                ',' | '\n' if open == 0 => break,
                _ => self.step(),
            }
        }
        let text = self.text[begin..self.at].trim();
        match text {
            "None" => Value::Null,
            "True" => true.into(),
            "False" => false.into(),
            _ => {
                let known = self.names.iter().find(|(name, _)| name == text).map(|(_, value)| value.clone());
                known.unwrap_or_else(|| number(text).unwrap_or_else(|| text.into()))
            }
        }
    }

    /// A text in quotes, of one or three; what is escaped stays as it is written.
    fn string(&mut self) -> Option<String> {
        let quote = self.peek()?;
        let three: String = std::iter::repeat_n(quote, 3).collect();
        let end = if self.text[self.at..].starts_with(&three) { three } else { quote.to_string() };
        self.at += end.len();
        let begin = self.at;
        while let Some(c) = self.peek() {
            if self.text[self.at..].starts_with(&end) {
                let text = self.text[begin..self.at].to_owned();
                self.at += end.len();
                return Some(text);
            }
            if c == '\n' && end.len() == 1 {
                return None;
            }
            self.step();
            if c == '\\' {
                self.step_if_any();
            }
        }
        None
    }

    fn step_if_any(&mut self) {
        if self.peek().is_some() {
            self.step();
        }
    }

    fn list(&mut self, depth: usize, end: char) -> Result<Option<Value>, JobError> {
        self.step();
        let mut items = Vec::new();
        let mut commas = 0;
        loop {
            self.spaces();
            match self.peek() {
                None => return Ok(None),
                Some(c) if c == end => {
                    self.step();
                    // A value in brackets is itself.
                    let is_tuple = end == ']' || commas > 0 || items.is_empty();
                    return Ok(if is_tuple { Some(Value::Array(items)) } else { items.pop() });
                }
                Some(',') => {
                    commas += 1;
                    self.step();
                }
                Some(')' | ']' | '}') => return Ok(None),
                Some(_) => {
                    let before = self.at;
                    items.push(self.value(depth + 1)?);
                    if self.at == before {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn dictionary(&mut self, depth: usize) -> Result<Option<Value>, JobError> {
        self.step();
        let mut entries = Map::new();
        loop {
            self.spaces();
            match self.peek() {
                Some('}') => {
                    self.step();
                    return Ok(Some(Value::Object(entries)));
                }
                Some(',') => self.step(),
                Some('"' | '\'') => {
                    let Some(key) = self.string() else { return Ok(None) };
                    self.spaces();
                    if self.peek() != Some(':') {
                        return Ok(None);
                    }
                    self.step();
                    let value = self.value(depth + 1)?;
                    entries.insert(key, value);
                }
                _ => return Ok(None),
            }
        }
    }
}

fn number(text: &str) -> Option<Value> {
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || "-+.".contains(c));
    match super::read_scalar(text) {
        number @ Value::Number(_) if begins => Some(number),
        _ => product(text),
    }
}

/// `2 * 1024`
fn product(text: &str) -> Option<Value> {
    let factors: Option<Vec<i64>> = text.split('*').map(|factor| factor.trim().parse().ok()).collect();
    factors?.into_iter().try_fold(1_i64, i64::checked_mul).map(Value::from)
}
