//! What becomes of a key: a row a key, and the walk over a config that finds a row for each.

use serde_json::Value;
use tonnage_core::job::{Allowance, Place};

use crate::facts::Facts;
use crate::tree::{Entry, Node, find_entry, is_null, is_on, same_key};

/// What became of a key of a config.
#[derive(Clone, Debug, PartialEq)]
pub enum Became {
    /// It decides these keys of the job.
    Used(&'static str),
    /// It costs no memory of the GPU, for this reason.
    NoMemory(&'static str),
    /// No key of the job says it: this sentence, and what the answer allows for it.
    Noted(String, Allowance),
    /// The job cannot be estimated with it, for this reason.
    Refused(String),
    /// Nobody here knows it.
    NotUnderstood,
}

/// A key of a program and what becomes of it.
pub type Row = (&'static str, Rule);

/// A reason, and the keys that cost no memory for it, with spaces between them.
pub type Free = (&'static str, &'static str);

/// The keys of a program.
#[derive(Clone, Copy)]
pub struct Table {
    /// A row a key.
    pub rows: &'static [Row],
    /// Those of which the reason is one of a few.
    pub free: &'static [Free],
}

impl Table {
    /// A table of rows alone.
    pub const fn of(rows: &'static [Row]) -> Self {
        Self { rows, free: &[] }
    }

    /// What becomes of `key`.
    pub(crate) fn rule(&self, key: &str) -> Option<Rule> {
        let row = self.rows.iter().find(|(name, _)| is_called(name, key)).map(|(_, rule)| *rule);
        let is_free = |(_, names): &&Free| names.split_ascii_whitespace().any(|name| same_key(name, key));
        row.or_else(|| self.free.iter().find(is_free).map(|(why, _)| Rule::Free(why)))
    }

    /// Every key that the table knows.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let free = self.free.iter().flat_map(|(_, names)| names.split_ascii_whitespace());
        self.rows.iter().map(|(name, _)| *name).chain(free)
    }
}

/// What becomes of a key.
#[derive(Clone, Copy)]
pub enum Rule {
    /// The key of the job with the same values.
    Sets(&'static str),
    /// It costs no memory, for this reason.
    Free(&'static str),
    /// Nothing while it is off; on, this sentence and what it allows for.
    Notes(&'static str, Allowance),
    /// Nothing while it is off; on, the job cannot be estimated, for this reason.
    Refuses(&'static str),
    /// What a function makes of it.
    Reads(fn(&mut Facts, &Said<'_>) -> Became),
    /// A table of keys of its own.
    Inside(&'static [Row]),
    /// The same; what is no table, a function reads.
    InsideOr(&'static [Row], fn(&mut Facts, &Said<'_>) -> Became),
}

/// A key as a rule sees it.
pub struct Said<'a> {
    /// What is written for it.
    pub value: &'a Value,
    /// Where it stands in the file; `None` for what stands in none.
    pub place: Option<&'a Place>,
    /// The keys beside it.
    pub beside: &'a [Entry],
    /// The keys of the whole file.
    pub file: &'a [Entry],
}

impl Said<'_> {
    /// The value of a key beside this one.
    pub fn other(&self, key: &str) -> Option<Value> {
        find_entry(self.beside, key).map(|entry| entry.node.value())
    }

    /// Whether a key beside this one switches something on.
    pub fn other_is_on(&self, key: &str) -> bool {
        self.other(key).is_some_and(|value| is_on(&value))
    }

    /// The value as a text without quotes, in small letters.
    pub fn word(&self) -> String {
        crate::tree::plain_text(self.value).trim().to_lowercase()
    }
}

/// A key that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyRead {
    /// The key, with those it stands below.
    pub key: String,
    /// What is written for it, as JSON.
    pub value: Value,
    /// Where it stands.
    pub place: Option<Place>,
    /// What became of it.
    pub became: Became,
}

/// What a key that is off says.
pub const OFF: &str = "it is off, as it is where nobody says it";

/// Reads all `entries` by the first row of `tables` that has their key.
pub fn walk_entries(facts: &mut Facts, entries: &[Entry], tables: &[Table], read: &mut Vec<KeyRead>) {
    Walk { file: entries, read }.walk_table(facts, entries, tables, "");
}

struct Walk<'a> {
    file: &'a [Entry],
    read: &'a mut Vec<KeyRead>,
}

impl Walk<'_> {
    fn walk_table(&mut self, facts: &mut Facts, entries: &[Entry], tables: &[Table], path: &str) {
        for entry in entries {
            let key = format!("{path}{}", entry.key);
            match (tables.iter().find_map(|table| table.rule(&entry.key)), &entry.node) {
                (Some(Rule::Inside(rows) | Rule::InsideOr(rows, _)), Node::Table(below)) => {
                    self.walk_table(facts, below, &[Table::of(rows)], &format!("{key}."));
                }
                // A key of nobody's with keys below it: each of them is named.
                (None, Node::Table(below)) if !below.is_empty() => {
                    self.walk_table(facts, below, &[], &format!("{key}."));
                }
                (rule, node) => {
                    let value = node.value();
                    let said = Said { value: &value, place: entry.place.as_ref(), beside: entries, file: self.file };
                    let became = rule.map_or(Became::NotUnderstood, |rule| rule.of(facts, &said));
                    let place = entry.place.clone();
                    self.read.push(KeyRead { key, value, place, became });
                }
            }
        }
    }
}

/// Whether a row is about a key; `data.*` is about all that begin so.
fn is_called(row: &str, key: &str) -> bool {
    row.strip_suffix('*').map_or_else(|| same_key(row, key), |begin| key.starts_with(begin))
}

impl Rule {
    /// What becomes of a key by this rule.
    pub(crate) fn of(self, facts: &mut Facts, said: &Said<'_>) -> Became {
        match self {
            Self::Sets(_) if is_null(said.value) => Became::NoMemory(OFF),
            Self::Sets(key) => facts.set_key(key, said.value, said.place),
            Self::Free(why) => Became::NoMemory(why),
            Self::Notes(..) | Self::Refuses(_) if !is_on(said.value) => Became::NoMemory(OFF),
            Self::Notes(sentence, allowance) => Became::Noted(sentence.to_owned(), allowance),
            Self::Refuses(why) => Became::Refused(why.to_owned()),
            Self::Reads(read) | Self::InsideOr(_, read) => read(facts, said),
            Self::Inside(_) if is_null(said.value) || said.value.as_object().is_some_and(serde_json::Map::is_empty) => {
                Became::NoMemory(OFF)
            }
            Self::Inside(_) => Became::NotUnderstood,
        }
    }
}
