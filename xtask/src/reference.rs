//! Reads pairs of reference files: the cases that were measured, and their figures.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The measured (or predicted) figures of a case, under the reference's own names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Peak of the requests, each rounded up to 512 bytes; not every script measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounded512_peak_bytes: Option<u64>,
    /// `torch.cuda.max_memory_allocated()`.
    pub peak_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()`.
    pub peak_reserved_bytes: u64,
    /// `step:phase` of the peak.
    pub peak_phase: String,
}

/// Reads a JSON file.
pub fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// The cases of a case file.
pub fn read_cases(path: &Path) -> Result<Vec<Value>> {
    match read_json(path)? {
        Value::Array(cases) => Ok(cases),
        _ => bail!("{} is not a list of cases", path.display()),
    }
}

/// The figures by case id; with or without the wrapping `cases` object.
pub fn read_truth(path: &Path) -> Result<Map<String, Value>> {
    match read_json(path)? {
        Value::Object(mut file) => match file.remove("cases") {
            Some(Value::Object(cases)) => Ok(cases),
            Some(_) => bail!("`cases` in {} is not an object", path.display()),
            None => Ok(file),
        },
        _ => bail!("{} is not an object of figures by case id", path.display()),
    }
}

/// A case's id.
pub fn case_id(case: &Value) -> &str {
    case.get("id").and_then(Value::as_str).unwrap_or("case")
}
