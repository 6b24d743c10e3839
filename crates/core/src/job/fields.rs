//! The fields of a model's `config.json`, read by name with the family's defaults; errors name the key.

use serde_json::{Map, Value};
use thiserror::Error;

use super::kind::brief_text;

/// A config field that a family cannot use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("config key `{key}`: {problem}")]
pub struct FieldError {
    /// The key in `config.json`.
    pub key: String,
    /// What is wrong with it, as a lowercase fragment.
    pub problem: String,
    /// Whether a model may well have it, and only the simulation does not.
    pub is_unsimulated: bool,
}

impl FieldError {
    /// An error about `key`.
    pub fn new(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.to_owned(), problem: problem.into(), is_unsimulated: false }
    }

    /// An error about `key` that only the simulation has.
    pub fn unsimulated(key: &str, problem: impl Into<String>) -> Self {
        Self { is_unsimulated: true, ..Self::new(key, problem) }
    }
}

/// The largest size that any config field may have. Far above every published model, and low enough that a product
/// of two sizes never overflows a `u64`; a product of three must be checked.
pub const MAX_SIZE: u64 = 1 << 31;
/// The most layers a model may have. A simulated layer costs memory and time, so the answer stays bounded: of preference
/// training a layer takes about 120 KiB and a millisecond. The deepest published decoders have fewer than 200.
pub const MAX_LAYERS: u64 = 1024;

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
            Some(size) if size > MAX_SIZE => {
                Err(FieldError::new(key, format!("must be at most {MAX_SIZE}, found {size}")))
            }
            Some(size) => Ok(Some(size)),
            None => Err(FieldError::new(key, format!("must be a positive integer, found {}", brief_text(value)))),
        }
    }

    /// A positive integer up to `max`, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no integer, 0, or above `max`.
    pub fn bounded(&self, key: &str, default: u64, max: u64) -> Result<u64, FieldError> {
        match self.size(key, default)? {
            size if size > max => Err(FieldError::new(key, format!("must be at most {max}, found {size}"))),
            size => Ok(size),
        }
    }

    /// A number of layers, up to `MAX_LAYERS`, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no integer, 0, or above the limit.
    pub fn layers(&self, key: &str, default: u64) -> Result<u64, FieldError> {
        self.bounded(key, default, MAX_LAYERS)
    }

    /// The number of classes of a classification head: said, or those that are named (`id2label`), or two.
    ///
    /// # Errors
    /// When it is no positive integer up to a million.
    pub fn num_labels(&self) -> Result<u64, FieldError> {
        let named = self.object("id2label")?.map_or(2, |names| names.0.len() as u64);
        self.bounded("num_labels", named.max(1), 1_000_000)
    }

    /// A list of strings (`layer_types`), `None` when the key is absent or `null`.
    ///
    /// # Errors
    /// When the value is no list of strings.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, FieldError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let texts = value.as_array().and_then(|items| items.iter().map(Value::as_str).collect());
        texts
            .map(Some)
            .ok_or_else(|| FieldError::new(key, format!("must be a list of strings, found {}", brief_text(value))))
    }

    /// The fields of a nested object (`rope_parameters`), `None` when the key is absent or `null`.
    ///
    /// # Errors
    /// When the value is no object.
    pub fn object(&self, key: &str) -> Result<Option<Self>, FieldError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let fields = value.as_object().cloned().map(Self);
        fields.map(Some).ok_or_else(|| FieldError::new(key, format!("must be an object, found {}", brief_text(value))))
    }

    /// A number between 0 and 1, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no number or out of range.
    pub fn probability(&self, key: &str, default: f64) -> Result<f64, FieldError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.as_f64() {
            Some(p) if (0.0..1.0).contains(&p) => Ok(p),
            _ => Err(FieldError::new(key, format!("must be a number from 0 to below 1, found {}", brief_text(value)))),
        }
    }

    /// A finite number, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no such number.
    pub fn number(&self, key: &str, default: f64) -> Result<f64, FieldError> {
        Ok(self.optional_number(key)?.unwrap_or(default))
    }

    /// A finite number, `None` when the key is absent or `null`.
    ///
    /// # Errors
    /// When the value is no such number.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>, FieldError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| FieldError::new(key, format!("must be a number, found {}", brief_text(value))))
    }

    /// A number above 0, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no such number.
    pub fn positive(&self, key: &str, default: f64) -> Result<f64, FieldError> {
        match self.number(key, default)? {
            number if number > 0.0 => Ok(number),
            number => Err(FieldError::new(key, format!("must be a number above 0, found {number}"))),
        }
    }

    /// A number above 0 that has no default.
    ///
    /// # Errors
    /// When the key is absent or its value is no such number.
    pub fn needed(&self, key: &str) -> Result<f64, FieldError> {
        if self.get(key).is_none() {
            return Err(FieldError::new(key, "is missing: it has no default"));
        }
        self.positive(key, 1.0)
    }

    /// The id of a token, `default` when the key is absent, `None` when it is `null` or no id.
    pub fn token(&self, key: &str, default: Option<u64>) -> Option<u64> {
        self.0.get(key).map_or(default, Value::as_u64)
    }

    /// A boolean, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no boolean.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, FieldError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value
            .as_bool()
            .ok_or_else(|| FieldError::new(key, format!("must be true or false, found {}", brief_text(value))))
    }

    /// Refuses a switch that the simulation has no layers for, where it is on.
    ///
    /// # Errors
    /// When it is, or is no boolean.
    pub fn refuse_on(&self, key: &str, problem: &str) -> Result<(), FieldError> {
        if self.flag(key, false)? { Err(FieldError::unsimulated(key, problem)) } else { Ok(()) }
    }

    /// A string, or `default` when the key is absent.
    ///
    /// # Errors
    /// When the value is no string.
    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str, FieldError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_str().ok_or_else(|| FieldError::new(key, format!("must be a string, found {}", brief_text(value))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields(value.as_object().cloned().unwrap())
    }

    #[test]
    fn sizes_are_bounded() {
        let cases = [
            (json!(0), "must be at least 1, found 0"),
            (json!(-1), "must be a positive integer, found -1"),
            (json!(1.5), "must be a positive integer, found 1.5"),
            (json!("4"), "must be a positive integer, found \"4\""),
            (json!(1_u64 << 40), "must be at most 2147483648, found 1099511627776"),
            (json!(5000), "must be at most 1024, found 5000"),
        ];
        for (value, problem) in cases {
            let error = fields(json!({"n_layer": value})).layers("n_layer", 12).unwrap_err();
            assert_eq!(error.to_string(), format!("config key `n_layer`: {problem}"));
        }
        assert_eq!(fields(json!({"n_layer": null})).layers("n_layer", 12), Ok(12));
    }

    #[test]
    fn reads_lists_and_objects() {
        let config = fields(json!({"layer_types": ["a", "b"], "rope_parameters": {"rope_theta": 1}, "bad": [1]}));
        assert_eq!(config.texts("layer_types"), Ok(Some(vec!["a", "b"])));
        assert_eq!(config.texts("absent"), Ok(None));
        assert!(config.texts("bad").is_err());
        assert!(config.object("rope_parameters").unwrap().unwrap().get("rope_theta").is_some());
        assert!(config.object("bad").is_err());
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let error = fields(json!({"x": "ü".repeat(1000)})).flag("x", true).unwrap_err();
        assert!(error.problem.len() < 200);
    }
}
