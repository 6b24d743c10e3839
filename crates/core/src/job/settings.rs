//! Values on their way to a job: each with its key and where it came from; a later layer replaces an earlier one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::keys::{self, KEYS, Key};
use super::kind::brief_text;
use super::words::{self, Meaning};
use super::{JobError, JobErrorKind, Place};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody said; why it is what it is.
    Default(String),
    /// The model's config.
    ModelConfig(String),
    /// A job file.
    JobFile(Place),
    /// A flag or an assignment on the command line.
    Flag(String),
    /// What lies in an environment of Python's: its folder.
    Installed(String),
    /// The program that uses this library.
    Caller,
    /// A suite of configurations: the assignment as it stands there.
    Suite(String),
    /// A remedy, by its name.
    Remedy(String),
    /// A plan: all that it changes.
    Plan,
    /// The number of GPUs that the job is spread over.
    Spread,
    /// Another number of rows of a pass, at the same effective batch.
    Rows,
    /// The guard of a run: the batch of an attempt.
    Guard,
}

impl Origin {
    /// Whether it lies above the job file: whoever set it knew what the file says.
    pub const fn is_above_file(&self) -> bool {
        !matches!(self, Self::Default(_) | Self::ModelConfig(_) | Self::JobFile(_) | Self::Installed(_))
    }

    /// As it is said where it is clear that somebody set the value: a flag without the word.
    pub fn said(&self) -> String {
        match self {
            Self::Flag(flag) => flag.clone(),
            Self::Installed(environment) => environment.clone(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default(why) => write!(f, "default: {why}"),
            Self::ModelConfig(name) => write!(f, "config of {name}"),
            Self::JobFile(place) => write!(f, "{}:{}", place.file, place.line),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Installed(environment) => write!(f, "installed in {environment}"),
            Self::Caller => f.write_str("set by the caller"),
            Self::Suite(assignment) => write!(f, "suite {assignment}"),
            Self::Remedy(name) => write!(f, "remedy {name}"),
            Self::Plan => f.write_str("plan"),
            Self::Spread => f.write_str("number of GPUs"),
            Self::Rows => f.write_str("rows of a pass"),
            Self::Guard => f.write_str("tonnage run"),
        }
    }
}

/// A decided value: what `explain` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// As [`KEYS`](super::KEYS) names it, or `model.FIELD`.
    pub key: String,
    /// The value as one would write it in a job file.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.key, self.value, self.origin)
    }
}

/// A `key` set from outside the job file, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The key, or `model.` and a field of the model's config.
    pub key: String,
    /// The value as typed.
    pub value: String,
    /// Who set it.
    pub origin: Origin,
}

impl Override {
    /// `key` set to `value` by `origin`.
    pub fn new(key: impl Into<String>, value: impl ToString, origin: Origin) -> Self {
        Self { key: key.into(), value: value.to_string(), origin }
    }

    /// What the program that uses this library sets.
    pub fn caller(key: impl Into<String>, value: impl ToString) -> Self {
        Self::new(key, value, Origin::Caller)
    }

    /// What the flag of `key` sets.
    pub fn flag(key: &str, value: impl ToString) -> Self {
        let flag = Key::find(key).map_or_else(|| key.to_owned(), Key::flag);
        Self::new(key, value, Origin::Flag(flag))
    }

    /// Reads `key=value`.
    ///
    /// # Errors
    /// When there is no `=`.
    pub fn assignment(text: &str) -> Result<Self, JobError> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Self::new(key.trim(), value.trim(), Origin::Flag(text.trim().to_owned())))
            }
            _ => Err(JobError::of_kind(JobErrorKind::Unreadable, format!("`{text}` sets nothing"))
                .hint("write it as `key=value`")),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub value: Value,
    pub origin: Origin,
}

/// What has been said so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settings {
    keys: BTreeMap<&'static str, Setting>,
    /// Fields of the model's config, `model_type` among them.
    pub model: BTreeMap<String, Setting>,
    /// What the answer must say about the input.
    pub notes: Vec<String>,
}

impl Settings {
    /// What was said about the key called `name`.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.keys.get(name)
    }

    /// Every key that was set.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &Setting)> {
        self.keys.iter().map(|(key, setting)| (*key, setting))
    }

    /// Where a flag chooses another strategy, what the job file says of its own is left out.
    fn leave_behind(&mut self, parallel: &str) {
        let is_left = |name: &str, setting: &Setting| {
            let of = |table: &str| name.split_once('.').is_some_and(|(begin, _)| begin == table);
            matches!(setting.origin, Origin::JobFile(_)) && tables_of_other_strategies(parallel).any(of)
        };
        let left: Vec<&'static str> =
            self.keys.iter().filter(|(name, setting)| is_left(name, setting)).map(|(name, _)| *name).collect();
        for name in left {
            self.keys.remove(name);
            self.notes
                .push(format!("`{name}` of the job file is left out: parallel = \"{parallel}\" does not read it"));
        }
    }

    /// Whether any key of the table `table` was set.
    pub fn has_table(&self, table: &str) -> bool {
        self.keys.keys().any(|key| key.split_once('.').is_some_and(|(begin, _)| begin == table))
    }

    /// The model's fields as a config.
    pub fn model_fields(&self) -> Map<String, Value> {
        self.model.iter().map(|(key, setting)| (key.clone(), setting.value.clone())).collect()
    }

    /// Sets the key called `name`.
    ///
    /// # Errors
    /// When there is no such key or the value does not suit it.
    pub fn set(&mut self, name: &str, value: &Value, origin: Origin) -> Result<(), JobError> {
        let key = Key::called(name).ok_or_else(|| unknown_key(name))?;
        match words::meaning_of_value(key.name, value).filter(|_| key.kind.check(value).is_err()) {
            Some(Meaning::Says(others)) => return self.set_all(others, origin),
            Some(Meaning::Sentence(text)) => {
                return Err(JobError::of_kind(
                    JobErrorKind::Value,
                    format!("`{}`: {} is a word of other programs", key.name, brief_text(value)),
                )
                .about(&[key.name])
                .hint(text));
            }
            Some(Meaning::Key(_)) | None => (),
        }
        let value = key.kind.check(value).map_err(|error| {
            let hint = error.meant.map_or_else(|| key.example_for(value), |meant| format!("did you mean \"{meant}\"?"));
            JobError::of_kind(JobErrorKind::Value, format!("`{}` {}", key.name, error.problem))
                .about(&[key.name])
                .hint(hint)
        })?;
        if key.name == keys::ALLOCATOR {
            // The settings string is the whole setting: an earlier layer's table does not shine through.
            self.keys.retain(|name, _| !name.starts_with("allocator."));
        }
        if key.name == keys::PARALLEL && origin.is_above_file() {
            self.leave_behind(value.as_str().unwrap_or_default());
        }
        if key.name == keys::MODEL {
            self.model.clear();
        }
        self.keys.insert(key.name, Setting { value, origin });
        Ok(())
    }

    /// Sets what a word of another program says.
    fn set_all(&mut self, said: &[(&str, &str)], origin: Origin) -> Result<(), JobError> {
        said.iter().try_for_each(|(name, text)| self.set(name, &words::json_value(text), origin.clone()))
    }

    /// As [`Self::set_all`]; a switch for adapters says that there are some, and not of which rank where that was said.
    fn switch_on(&mut self, said: &[(&str, &str)], origin: Origin) -> Result<(), JobError> {
        let has_rank = self.keys.contains_key(keys::LORA_R);
        let said: Vec<_> = said.iter().copied().filter(|(name, _)| !(has_rank && *name == keys::LORA_R)).collect();
        self.set_all(&said, origin)
    }

    /// Sets the key called `name`, or what a switch of another program with that name says.
    ///
    /// # Errors
    /// When there is no such key or the value does not suit it.
    pub fn set_named(&mut self, name: &str, value: &Value, origin: Origin) -> Result<(), JobError> {
        match words::meaning_of_name(name).filter(|_| Key::find(name).is_none()) {
            Some(Meaning::Says(others)) if is_on(value) => self.switch_on(others, origin),
            Some(Meaning::Says(_)) => Ok(()),
            _ => self.set(name, value, origin),
        }
    }

    /// Sets what a flag says.
    ///
    /// # Errors
    /// When there is no such key or the value does not suit it.
    pub fn set_override(&mut self, given: &Override) -> Result<(), JobError> {
        let origin = given.origin.clone();
        if let Some(field) = given.key.strip_prefix("model.") {
            let value = serde_json::from_str(&given.value).unwrap_or_else(|_| given.value.as_str().into());
            self.model.insert(field.to_owned(), Setting { value, origin });
            return Ok(());
        }
        match Key::called(&given.key) {
            Some(key) => self.set(key.name, &key.kind.parse_text(&given.value), origin),
            None => self.set_named(&given.key, &given.value.as_str().into(), origin),
        }
    }
}

impl Override {
    /// Whether the key exists and can have the value at all.
    ///
    /// # Errors
    /// With what is wrong, and the nearest known word.
    pub fn check(&self) -> Result<(), JobError> {
        Settings::default().set_override(self)
    }
}

/// The tables of strategies, and the values of `parallel` that read each.
const STRATEGY_TABLES: [(&str, &[&str]); 5] = [
    ("ddp", &["ddp", "zero1"]),
    ("zero1", &["zero1"]),
    ("fsdp1", &["fsdp1"]),
    ("fsdp2", &["fsdp2"]),
    ("deepspeed", &["deepspeed"]),
];

/// The tables that are of other strategies than `parallel`.
pub fn tables_of_other_strategies(parallel: &str) -> impl Iterator<Item = &'static str> {
    let others = STRATEGY_TABLES.iter().filter(move |(_, read_by)| !read_by.contains(&parallel));
    others.map(|(table, _)| *table)
}

/// Whether a switch of another program is on.
fn is_on(value: &Value) -> bool {
    match value {
        Value::Bool(on) => *on,
        Value::String(text) => !matches!(text.to_lowercase().as_str(), "false" | "no" | "off" | "0"),
        _ => true,
    }
}

/// The error for a key that does not exist.
pub(super) fn unknown_key(name: &str) -> JobError {
    if let Some(Meaning::Sentence(text)) = words::meaning_of_name(name) {
        return JobError::of_kind(
            JobErrorKind::UnknownKey,
            format!("`{}` is no key of a job", name.chars().take(60).collect::<String>()),
        )
        .hint(text);
    }
    let hint = match Key::nearest(name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("`tonnage keys` lists the {} keys of a job", KEYS.len()),
    };
    JobError::of_kind(JobErrorKind::UnknownKey, format!("unknown key `{}`", name.chars().take(60).collect::<String>()))
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn switches_for_adapters_keep_the_rank_that_was_said() {
        for switch in ["use_lora", "qlora"] {
            let mut settings = Settings::default();
            settings.set("lora.r", &json!(64), Origin::Caller).unwrap();
            settings.set_named(switch, &json!(true), Origin::Caller).unwrap();
            assert_eq!(settings.get("lora.r").unwrap().value, json!(64), "{switch}");
            let mut settings = Settings::default();
            settings.set_named(switch, &json!(true), Origin::Caller).unwrap();
            assert_eq!(settings.get("lora.r").unwrap().value, json!(8), "{switch}");
            settings.set("lora.r", &json!(64), Origin::Caller).unwrap();
            assert_eq!(settings.get("lora.r").unwrap().value, json!(64), "{switch}");
        }
    }

    #[test]
    fn later_layers_win() {
        let mut settings = Settings::default();
        let place = Place { file: "job.toml".to_owned(), line: 3, column: 1 };
        settings.set("micro_batch_size", &json!(4), Origin::JobFile(place.clone())).unwrap();
        settings.set("allocator.expandable_segments", &json!(true), Origin::JobFile(place)).unwrap();
        settings.set_override(&Override::flag("micro_batch_size", "16")).unwrap();
        settings.set_override(&Override::assignment("allocator=max_split_size_mb:64").unwrap()).unwrap();
        let batch = settings.get("micro_batch_size").unwrap();
        assert_eq!((&batch.value, batch.origin.to_string()), (&json!(16), "flag --micro-batch-size".to_owned()));
        assert!(!settings.has_table("allocator"));
    }

    #[test]
    fn model_fields_are_json_or_text() {
        let mut settings = Settings::default();
        for text in ["model.num_hidden_layers=2", "model.hidden_act=silu", "model.sliding_window=null"] {
            settings.set_override(&Override::assignment(text).unwrap()).unwrap();
        }
        let fields = Value::Object(settings.model_fields());
        assert_eq!(fields, json!({"num_hidden_layers": 2, "hidden_act": "silu", "sliding_window": null}));
    }

    #[test]
    fn says_what_is_wrong() {
        let cases = [
            ("micro_batch_siz=8", "unknown key `micro_batch_siz`", "did you mean `micro_batch_size`?"),
            ("quantization_bit=4", "`quantization_bit` is no key of a job", "quantized weights"),
            ("wombat=8", "unknown key `wombat`", "`tonnage keys` lists the "),
            (
                "micro_batch_size=0",
                "`micro_batch_size` must be a whole number from 1 to 1048576, found 0",
                "for example: micro_batch_size = 8",
            ),
            (
                "precision=bf61",
                "`precision` must be one of fp32, bf16, fp16, bf16-amp, amp-bf16, fp16-amp, amp-fp16, found \"bf61\"",
                "did you mean \"bf16\"?",
            ),
            (
                "optimizer=zampo",
                "`optimizer` must be one of adamw, ",
                "for example: optimizer = \"adamw_fused\"; what is none of these: `tonnage rehearse",
            ),
        ];
        for (text, problem, hint) in cases {
            let error = Settings::default().set_override(&Override::assignment(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
            assert!(error.hint.as_deref().unwrap_or_default().starts_with(hint), "{error:?}");
        }
        let error = Override::assignment("nothing").unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.hint.as_deref()),
            ("`nothing` sets nothing", Some("write it as `key=value`"))
        );
    }
}
