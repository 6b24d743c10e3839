//! [`Facts`]: what the keys of all files come to, before the model is known.

use serde_json::Value;
use tonnage_core::job::{LeftOpen, Origin, Override, Place, keys};

use crate::rule::Became;
use crate::tree::{is_null, plain_text};

/// A dtype of weights or of autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// float32
    Fp32,
    /// bfloat16
    Bf16,
    /// float16
    Fp16,
}

impl Dtype {
    /// The dtype that a word means: `bfloat16`, `torch.bfloat16`, `bf16`.
    pub fn of_word(word: &str) -> Option<Self> {
        match word.trim().trim_start_matches("torch.").to_lowercase().as_str() {
            "float32" | "fp32" | "float" | "full" => Some(Self::Fp32),
            "bfloat16" | "bf16" => Some(Self::Bf16),
            "float16" | "fp16" | "half" => Some(Self::Fp16),
            _ => None,
        }
    }
}

/// In which dtype the weights are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// In this one.
    As(Dtype),
    /// In the one they were published in.
    Published,
}

/// What objects of Python come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// A model that is there already.
    Model,
    /// A model's name, which the trainer loads itself.
    Name,
}

/// What the keys of all files come to.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Keys of the job, the last one winning; those that nobody wrote have a default's origin.
    pub sets: Vec<Override>,
    /// What no key can say.
    pub left_open: Vec<LeftOpen>,
    /// The dtype of the weights, and where it stands.
    pub weights: Option<(Weights, Option<Place>)>,
    /// The dtype of autocast, and where it stands; `Some(None)` is none, said.
    pub autocast: Option<(Option<Dtype>, Option<Place>)>,
    /// Two files that say different things of one key.
    pub conflicts: Vec<(String, Option<Place>)>,
    /// Files that are named and that belong to the job.
    pub wanted: Vec<String>,
    /// The names of the files that were given.
    pub given: Vec<String>,
    /// Set where objects are read and no files: a switch that is off was said, or is the class's own default.
    pub live: Option<Live>,
    /// Whether a file says a weight decay, be it 0.
    pub says_decay: bool,
    /// Whether a table of DeepSpeed's was read.
    pub has_deepspeed: bool,
    /// Whether what FSDP2's shards refuse of an optimizer says nothing here: its shards are FSDP1's.
    pub takes_shards: bool,
    /// Whether a file says FSDP's first version.
    pub is_flat: bool,
    /// What that one alone is told.
    pub flat: Vec<(&'static str, String)>,
}

impl Facts {
    /// Sets a key of the job to what `value` says.
    pub fn set_key(&mut self, key: &'static str, value: &Value, place: Option<&Place>) -> Became {
        let text = match value {
            Value::Array(items) => items.iter().map(plain_text).collect::<Vec<_>>().join(","),
            other => plain_text(other),
        };
        self.set_text(key, text, place);
        Became::Used(key)
    }

    /// Sets a key of the job.
    pub fn set_text(&mut self, key: &'static str, value: impl ToString, place: Option<&Place>) {
        let value = value.to_string();
        let origin = place.map_or(Origin::Caller, |place| Origin::JobFile(place.clone()));
        let elsewhere = |given: &&Override| given.key == key && is_said(&given.origin);
        let first = self.sets.iter().find(elsewhere).filter(|first| !is_same(&first.value, &value));
        // Whatever else is off, one switch that is on recomputes.
        if key == keys::GRADIENT_CHECKPOINTING && first.is_some() {
            self.sets.iter_mut().filter(|given| given.key == key).for_each(|given| given.value = true.to_string());
            return;
        }
        if let Some(first) = first {
            let problem = format!("`{key}` is {value} here and {} at {}", first.value, first.origin);
            self.conflicts.push((problem, place.cloned()));
        }
        self.sets.retain(|given| given.key != key);
        self.sets.push(Override { key: key.to_owned(), value, origin });
    }

    /// Sets a key of the job that no file says, for this reason.
    pub fn imply_key(&mut self, key: &'static str, value: impl ToString, why: &str) {
        if !self.is_set(key) {
            self.sets.push(Override::new(key, value, Origin::Default(why.to_owned())));
        }
    }

    /// Whether a key of the job is set.
    pub fn is_set(&self, key: &str) -> bool {
        self.value_of(key).is_some()
    }

    /// What a key of the job is set to.
    pub fn value_of(&self, key: &str) -> Option<&str> {
        self.sets.iter().find(|given| given.key == key).map(|given| given.value.as_str())
    }

    /// The whole number that a key of the job is set to.
    pub fn size_of(&self, key: &str) -> Option<u64> {
        self.value_of(key)?.parse().ok()
    }

    /// Takes the name of a file that belongs to the job; `what` it is.
    pub fn became_named(&mut self, said: &crate::rule::Said<'_>, what: &'static str) -> Became {
        let name = plain_text(said.value);
        if is_null(said.value) {
            return Became::NoMemory(crate::rule::OFF);
        }
        if self.given.iter().any(|given| base_name(given) == base_name(&name)) {
            return Became::Used(keys::PARALLEL);
        }
        self.wanted.push(name.clone());
        Became::Refused(format!("{what} `{}` was not given: give the file too, with --from", brief_text(&name)))
    }

    /// Takes a dtype of the weights.
    pub fn take_weights(&mut self, value: &Value, place: Option<&Place>) -> Became {
        let word = plain_text(value);
        let weights = match Dtype::of_word(&word) {
            _ if is_null(value) || word == "auto" => Weights::Published,
            Some(dtype) => Weights::As(dtype),
            None => return Became::Refused(format!("weights of dtype `{}` are not simulated", brief_text(&word))),
        };
        self.weights = Some((weights, place.cloned()));
        Became::Used(keys::PRECISION)
    }

    /// Takes a switch of autocast in `dtype`; off says only that it is not this one.
    pub fn take_autocast(&mut self, dtype: Dtype, on: bool, place: Option<&Place>) -> Became {
        if on {
            self.autocast = Some((Some(dtype), place.cloned()));
        } else if self.autocast.is_none() {
            self.autocast = Some((None, place.cloned()));
        }
        Became::Used(keys::PRECISION)
    }
}

/// Whether two values are one, as texts or as numbers.
fn is_same(one: &str, other: &str) -> bool {
    let numbers = one.parse::<f64>().ok().zip(other.parse::<f64>().ok());
    one == other || numbers.is_some_and(|(one, other)| (one - other).abs() < f64::EPSILON)
}

fn is_said(origin: &Origin) -> bool {
    !matches!(origin, Origin::Default(_))
}

fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or_default()
}

fn brief_text(text: &str) -> String {
    crate::text::brief_text(text)
}
