//! What follows the world size: rules that the suite's file names, applied in sight and never to a value that was set.

use toml::Value;
use tonnage_core::job::JobError;
use tonnage_core::job::keys;

use crate::file::{flatten_table, text_number};

/// How a value follows the world size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// As many times as there are more ranks: rows of a step; SGD's learning rate (Goyal et al. 2017).
    Linear,
    /// By the square root of it: Adam's learning rate (Malladi et al. 2022).
    Sqrt,
    /// The inverse: steps between two lines of a log, or two evaluations, so that as many rows lie between them.
    Inverse,
    /// `constant`: the value does not follow the size.
    Constant,
}

impl Rule {
    fn read(key: &str, value: &Value) -> Result<Self, JobError> {
        match value.as_str() {
            Some("linear") => Ok(Self::Linear),
            Some("sqrt") => Ok(Self::Sqrt),
            Some("inverse") => Ok(Self::Inverse),
            Some("constant") => Ok(Self::Constant),
            _ => Err(JobError::new(format!("[scaling]: `{key}` is `linear`, `sqrt`, `inverse` or `constant`"))),
        }
    }

    fn scale_factor(self, times: f64) -> f64 {
        match self {
            Self::Linear => times,
            Self::Sqrt => times.sqrt(),
            Self::Inverse => times.recip(),
            Self::Constant => 1.0,
        }
    }

    /// The rule in words, for the key that it is of.
    fn words(self, key: &str) -> &'static str {
        let is_rate = key.ends_with("learning_rate") || key.ends_with("lr");
        match self {
            Self::Linear if is_rate => "linear in the world size, SGD's convention",
            Self::Sqrt if is_rate => "by the square root of the world size, Adam's convention",
            Self::Linear => "linear in the world size",
            Self::Sqrt => "by the square root of the world size",
            Self::Inverse => "inverse to the world size",
            Self::Constant => "the same at any world size",
        }
    }
}

/// The rules of a suite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scaling {
    /// The world size that values are written for.
    pub from: u64,
    /// Keys and their rules.
    pub rules: Vec<(String, Rule)>,
}

/// A value that a rule makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    pub value: Value,
    /// How it came about, in words.
    pub said: String,
}

impl Scaling {
    pub(crate) fn read(table: &toml::Table) -> Result<Self, JobError> {
        let from = match table.get("from") {
            None => 1,
            Some(value) => {
                value.as_integer().and_then(|from| u64::try_from(from).ok()).filter(|from| *from > 0).ok_or_else(
                    || JobError::new("[scaling]: `from` is the world size that the values are written for, from 1"),
                )?
            }
        };
        let mut rules = Vec::new();
        for (key, value) in flatten_table(table).into_iter().filter(|(key, _)| key != "from") {
            if key == keys::MODEL || key.starts_with("model.") {
                return Err(JobError::new(
                    "[scaling]: a model's sizes never follow the world size: it would be another model",
                )
                .hint("make it a configuration of its own"));
            }
            let rule = Rule::read(&key, &value)?;
            rules.push((key, rule));
        }
        Ok(Self { from, rules })
    }

    /// What `base` of `key` becomes at `world_size`; `None` where no rule changes it.
    ///
    /// # Errors
    /// When the value is no number, or would be no whole one that it has to be.
    pub fn apply_to(&self, key: &str, base: &Value, world_size: u64) -> Result<Option<Scaled>, JobError> {
        let Some((_, rule)) = self.rules.iter().find(|(name, _)| name == key) else { return Ok(None) };
        let factor = rule.scale_factor(world_size as f64 / self.from.max(1) as f64);
        if factor == 1.0 {
            return Ok(None);
        }
        let text = crate::file::value_text(base);
        let number =
            text_number(&text).ok_or_else(|| JobError::new(format!("[scaling]: `{key}` = {text} is no number")))?;
        let scaled = number * factor;
        let is_whole = matches!(base, Value::Integer(_)) || !text.contains(['.', 'e', 'E']);
        let (value, rounded) = match is_whole {
            true => {
                (Value::Integer((scaled.round() as i64).max(1)), if scaled.fract() == 0.0 { "" } else { ", rounded" })
            }
            false => (Value::Float(round_digits(scaled)), ""),
        };
        let said =
            format!("{key} {text} -> {value} ({}, {} -> {world_size}{rounded})", rule.words(key), self.from.max(1));
        Ok(Some(Scaled { value, said }))
    }
}

/// Six digits: a rate of 0.00084852813742 says no more than 0.000848528.
fn round_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_scale_what_they_name_and_say_how() {
        let table: toml::Table =
            toml::from_str("learning_rate = \"sqrt\"\nrows = \"linear\"\nlog_interval = \"inverse\"\nfrom = 2")
                .unwrap();
        let scaling = Scaling::read(&table).unwrap();
        let at = |key: &str, base: Value| scaling.apply_to(key, &base, 8).unwrap().map(|one| (one.value, one.said));
        let (rate, said) = at("learning_rate", Value::Float(3e-4)).unwrap();
        assert_eq!(rate, Value::Float(6e-4));
        assert!(said.contains("Adam's convention") && said.contains("2 -> 8"), "{said}");
        assert_eq!(at("rows", Value::Integer(12)).unwrap().0, Value::Integer(48));
        let (interval, said) = at("log_interval", Value::Integer(10)).unwrap();
        assert_eq!(interval, Value::Integer(3));
        assert!(said.contains("rounded"), "{said}");
        assert_eq!(at("seed", Value::Integer(1)), None);
        assert_eq!(scaling.apply_to("rows", &Value::Integer(12), 2), Ok(None));
        assert!(scaling.apply_to("rows", &Value::String("many".to_owned()), 4).is_err());
    }

    #[test]
    fn a_models_width_follows_nothing() {
        let table: toml::Table = toml::from_str("\"model.hidden_size\" = \"linear\"").unwrap();
        assert!(Scaling::read(&table).unwrap_err().problem.contains("never follow"));
        assert!(Scaling::read(&toml::from_str("rows = \"cubic\"").unwrap()).is_err());
        assert!(Scaling::read(&toml::from_str("from = 0").unwrap()).is_err());
    }
}
