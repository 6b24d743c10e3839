//! A job file: TOML text becomes settings, each with the line it stands on.

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::gpt_file;
use super::keys::{KEYS, Key};
use super::settings::{Origin, Setting, Settings, unknown_key};
use super::{Place, SpecError};

/// The largest job file read; a long one has a few KiB. Finding each value's line costs the square of the length, so the
/// bound keeps even a hostile file under a second.
pub const MAX_JOB_FILE_BYTES: usize = 64 << 10;

/// A text that is read, for places.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

/// A key or value with its place in the text.
pub(super) type Entry<'a> = (&'a Spanned<std::borrow::Cow<'a, str>>, &'a Spanned<DeValue<'a>>);

impl Source<'_> {
    pub fn place<T>(&self, spanned: &Spanned<T>) -> Place {
        Place::at(self.file, self.text, spanned.span().start)
    }

    fn origin<T>(&self, spanned: &Spanned<T>) -> Origin {
        Origin::JobFile(self.place(spanned))
    }

    /// Sets the key called `name` to what stands at `value`.
    pub fn set(&self, settings: &mut Settings, name: &str, (key, value): Entry<'_>) -> Result<(), SpecError> {
        let json = json(value.get_ref());
        settings.set(name, &json, self.origin(key)).map_err(|error| error.at(Some(self.place(value))))
    }

    /// Sets the config field `field` of the model to `value`.
    pub fn set_field(&self, settings: &mut Settings, field: &str, (key, value): Entry<'_>) {
        let setting = Setting { value: json(value.get_ref()), origin: self.origin(key) };
        settings.model.insert(field.to_owned(), setting);
    }
}

/// Reads the `text` of the job file called `file`.
///
/// # Errors
/// When the text is no TOML, a key is unknown, or a value does not suit its key; with line and column.
pub(super) fn read(file: &str, text: &str) -> Result<Settings, SpecError> {
    if text.len() > MAX_JOB_FILE_BYTES {
        return Err(SpecError::new(format!("{file}: {} bytes are no job file", text.len())));
    }
    let source = Source { file, text };
    let table = DeTable::parse(text).map_err(|error| broken_toml(source, &error))?;
    let table = table.get_ref();
    if gpt_file::is_one(table) {
        return gpt_file::read(source, table);
    }
    let mut settings = Settings::default();
    for entry in table {
        read_entry(source, &mut settings, entry)?;
    }
    Ok(settings)
}

/// Reads one entry of the file's top level.
pub(super) fn read_entry(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), SpecError> {
    let (key, value) = entry;
    let name = key.get_ref().as_ref();
    match value.get_ref() {
        DeValue::Table(fields) if name == "model" => read_model(source, settings, fields),
        // How it is launched is no part of what the job is; `tonnage run` reads it.
        DeValue::Table(_) if name == "run" => Ok(()),
        DeValue::Table(table) if is_table(name) => table.iter().try_for_each(|(inner, value)| {
            let full = format!("{name}.{}", inner.get_ref());
            named(source, inner, &full).and_then(|key| source.set(settings, key.name, (inner, value)))
        }),
        _ if is_table(name) && Key::find(name).is_none() => Err(SpecError::new(format!("`{name}` must be a table"))
            .at(Some(source.place(value)))
            .hint(format!("write its keys below a line `[{name}]`"))),
        _ => {
            let json = json(value.get_ref());
            let set = settings.set_named(name, &json, source.origin(key));
            set.map_err(|error| {
                error.at(Some(if Key::called(name).is_some() { source.place(value) } else { source.place(key) }))
            })
        }
    }
}

fn is_table(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name))
}

fn named<T>(source: Source<'_>, at: &Spanned<T>, name: &str) -> Result<&'static Key, SpecError> {
    Key::called(name).ok_or_else(|| unknown_key(name).at(Some(source.place(at))))
}

/// `[model]`: `name` is the model to start from, every other key a field of its config.
fn read_model(source: Source<'_>, settings: &mut Settings, fields: &DeTable<'_>) -> Result<(), SpecError> {
    let (names, others): (Vec<_>, Vec<_>) = fields.iter().partition(|(key, _)| key.get_ref() == "name");
    for entry in names {
        source.set(settings, "model", entry)?;
    }
    for (key, value) in others {
        source.set_field(settings, key.get_ref(), (key, value));
    }
    Ok(())
}

/// A TOML value as JSON; what JSON lacks (infinity, dates) becomes text, for the key's check to refuse.
fn json(value: &DeValue<'_>) -> Value {
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
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref())));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

fn broken_toml(source: Source<'_>, error: &toml::de::Error) -> SpecError {
    let place = error.span().map(|span| Place::at(source.file, source.text, span.start));
    SpecError::new(format!("broken TOML: {}", error.message().replace('\n', ", "))).at(place)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_keys_tables_and_lines() {
        let text = "model = \"gpt2\"\nmicro-batch-size = 4\n\n[lora]\nr = 16\ntargets = \"all-linear\"\n";
        let settings = read("job.toml", text).unwrap();
        let said = |name| settings.get(name).map(|s| (s.value.clone(), s.origin.to_string()));
        assert_eq!(said("micro_batch_size"), Some((json!(4), "job.toml:2".to_owned())));
        assert_eq!(said("lora.targets"), Some((json!(["all-linear"]), "job.toml:6".to_owned())));
        assert!(settings.has_table("lora"));
    }

    #[test]
    fn reads_a_model_table() {
        let text = "[model]\nname = \"gpt2\"\nn_layer = 2\nrope_parameters = {rope_theta = 1e4}\n";
        let settings = read("job.toml", text).unwrap();
        assert_eq!(settings.get("model").unwrap().value, json!("gpt2"));
        let fields = Value::Object(settings.model_fields());
        assert_eq!(fields, json!({"n_layer": 2, "rope_parameters": {"rope_theta": 1e4}}));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let cases = [
            (
                "seq_len = 1\nmodel = ",
                "job.toml:2:9: broken TOML: string values must be quoted, expected literal string",
            ),
            ("a b", "job.toml:1:3: broken TOML: key with no value, expected `=`"),
            ("\nseq_lem = 4", "job.toml:2:1: unknown key `seq_lem`"),
            ("[lora]\nrang = 4", "job.toml:2:1: unknown key `lora.rang`"),
            ("qlora = true", "job.toml:1:1: `qlora` is no key of a job"),
            ("lora = 8", "job.toml:1:8: `lora` must be a table"),
            ("seq_len = 1.5", "job.toml:1:11: `seq_len` must be a whole number from 1 to 16777216, found 1.5"),
            (
                "seq_len = 99999999999999999999",
                "job.toml:1:11: `seq_len` must be a whole number from 1 to 16777216, found \"99999999999999999999\"",
            ),
            ("clip_grad_norm = inf", "job.toml:1:18: `clip_grad_norm` must be a number, 0 or more, found \"inf\""),
            ("gpu = 2026-01-01", "job.toml:1:7: unreachable"),
            ("x = 1\nx = 2", "job.toml:2:1: broken TOML: duplicate key"),
        ];
        for (text, problem) in cases {
            match read("job.toml", text) {
                Err(error) => assert_eq!(error.to_string(), problem),
                Ok(settings) => assert!(problem.ends_with("unreachable"), "{text}: {settings:?}"),
            }
        }
    }

    #[test]
    fn size_is_bounded() {
        let error = read("job.toml", &" ".repeat(MAX_JOB_FILE_BYTES + 1)).unwrap_err();
        assert_eq!(error.to_string(), "job.toml: 65537 bytes are no job file");
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let error = read("job.toml", &format!("x = {}", "[".repeat(60_000))).unwrap_err();
        assert!(error.to_string().contains("broken TOML"), "{error}");
    }
}
