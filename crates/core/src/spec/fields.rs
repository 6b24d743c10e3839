//! The fields of a model's `config.json`, read by name with the family's defaults; errors name the key.

use serde_json::{Map, Value};
use thiserror::Error;

/// A config field that a family cannot use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("config key `{key}`: {problem}")]
pub struct FieldError {
    /// The key in `config.json`.
    pub key: String,
    /// What is wrong with it, as a lowercase fragment.
    pub problem: String,
}

impl FieldError {
    /// An error about `key`.
    pub fn new(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.to_owned(), problem: problem.into() }
    }
}

/// The fields of a model config, as in `config.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(pub Map<String, Value>);

impl Fields {
    /// The raw value of `key`; JSON `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A positive integer, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no integer or is 0.
    pub fn size(&self, key: &str, default: u64) -> Result<u64, FieldError> {
        Ok(self.optional_size(key)?.unwrap_or(default))
    }

    /// A positive integer, `None` when the key is absent or `null`.
    ///
    /// # Errors
    /// When the value is no integer or is 0.
    pub fn optional_size(&self, key: &str) -> Result<Option<u64>, FieldError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(0) => Err(FieldError::new(key, "must be at least 1, found 0")),
            Some(size) => Ok(Some(size)),
            None => Err(FieldError::new(key, format!("must be a positive integer, found {value}"))),
        }
    }

    /// A number between 0 and 1, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no number or out of range.
    pub fn probability(&self, key: &str, default: f64) -> Result<f64, FieldError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.as_f64() {
            Some(p) if (0.0..1.0).contains(&p) => Ok(p),
            _ => Err(FieldError::new(key, format!("must be a number from 0 to below 1, found {value}"))),
        }
    }

    /// A boolean, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no boolean.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, FieldError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| FieldError::new(key, format!("must be true or false, found {value}")))
    }

    /// A string, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no string.
    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str, FieldError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_str().ok_or_else(|| FieldError::new(key, format!("must be a string, found {value}")))
    }
}
