//! An entry of a TOML file: a key of a job, or a field of its model, with the line it stands on.

use crate::job::JobErrorKind;
use crate::job::keys;
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key};
use super::settings::{Origin, Setting, Settings, unknown_key};
use super::{JobError, Place};

/// A text that is read, for places.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

/// A key or value with its place in the text.
pub(super) type Entry<'a> = (&'a Spanned<std::borrow::Cow<'a, str>>, &'a Spanned<DeValue<'a>>);

impl Source<'_> {
    pub fn place_of<T>(&self, spanned: &Spanned<T>) -> Place {
        Place::of_offset(self.file, self.text, spanned.span().start)
    }

    fn origin_of<T>(&self, spanned: &Spanned<T>) -> Origin {
        Origin::JobFile(self.place_of(spanned))
    }

    /// Sets the key called `name` to what stands at `value`.
    pub fn set_entry(&self, settings: &mut Settings, name: &str, (key, value): Entry<'_>) -> Result<(), JobError> {
        let json = json_of(value.get_ref());
        settings.set(name, &json, self.origin_of(key)).map_err(|error| error.at_place(Some(self.place_of(value))))
    }

    /// Sets the config field `field` of the model to `value`.
    pub fn set_field(&self, settings: &mut Settings, field: &str, (key, value): Entry<'_>) {
        let setting = Setting { value: json_of(value.get_ref()), origin: self.origin_of(key) };
        settings.model.insert(field.to_owned(), setting);
    }
}

/// Reads one entry of the file's top level.
pub(super) fn read_entry(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), JobError> {
    let (key, value) = entry;
    let name = key.get_ref().as_ref();
    match value.get_ref() {
        DeValue::Table(fields) if name == keys::MODEL => read_model(source, settings, fields),
        // How it is launched is no part of what the job is; `tonnage run` reads it.
        DeValue::Table(_) if name == "run" => Ok(()),
        DeValue::Table(table) if is_table(name) => table.iter().try_for_each(|(inner, value)| {
            let full = format!("{name}.{}", inner.get_ref());
            key_named(source, inner, &full).and_then(|key| source.set_entry(settings, key.name, (inner, value)))
        }),
        _ if is_table(name) && Key::find(name).is_none() => {
            Err(JobError::of_kind(JobErrorKind::Value, format!("`{name}` must be a table"))
                .at_place(Some(source.place_of(value)))
                .hint(format!("write its keys below a line `[{name}]`")))
        }
        _ => {
            let json = json_of(value.get_ref());
            let set = settings.set_named(name, &json, source.origin_of(key));
            set.map_err(|error| {
                error.at_place(Some(if Key::called(name).is_some() {
                    source.place_of(value)
                } else {
                    source.place_of(key)
                }))
            })
        }
    }
}

fn is_table(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name))
}

fn key_named<T>(source: Source<'_>, at: &Spanned<T>, name: &str) -> Result<&'static Key, JobError> {
    Key::called(name).ok_or_else(|| unknown_key(name).at_place(Some(source.place_of(at))))
}

/// `[model]`: `name` is the model to start from, every other key a field of its config.
fn read_model(source: Source<'_>, settings: &mut Settings, fields: &DeTable<'_>) -> Result<(), JobError> {
    let (names, others): (Vec<_>, Vec<_>) = fields.iter().partition(|(key, _)| key.get_ref() == "name");
    for entry in names {
        source.set_entry(settings, keys::MODEL, entry)?;
    }
    for (key, value) in others {
        source.set_field(settings, key.get_ref(), (key, value));
    }
    Ok(())
}

/// A TOML value as JSON; what JSON lacks (infinity, dates) becomes text, for the key's check to refuse.
fn json_of(value: &DeValue<'_>) -> Value {
    match value {
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
        DeValue::Array(items) => items.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref())));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}
