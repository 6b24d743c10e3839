//! [`Answer`]: what `tonnage estimate` says to a recipe.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What is said to a recipe.
pub enum Answer {
    /// A figure, and nothing that widens it.
    Exact,
    /// A range with both ends.
    Range {
        /// Its width by the figure.
        width: f64,
    },
    /// A figure of which something is left out or unchecked: never more than `tight`.
    Open,
    /// No estimate, for this reason.
    Refused(String),
}

impl Answer {
    pub fn in_words(&self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::Range { width } => format!("a range of {:.0} %", width * 100.0),
            Self::Open => "a figure without an upper bound".to_owned(),
            Self::Refused(reason) => format!("refused: {reason}"),
        }
    }
}

/// Asks the program about a recipe, in the folder of the checkout, where the files that it names lie.
///
/// # Errors
/// When the program does not run, or prints no answer.
pub fn ask_estimate(binary: &Path, checkout: &Path, kind: &str, recipe: &Path) -> Result<Answer> {
    let mut command = Command::new(binary);
    command.args(["estimate", "--json", "--gpu", "h100", "--from", kind]).arg(recipe).current_dir(checkout);
    let output = command.output().with_context(|| binary.display().to_string())?;
    if let Ok(printed) = serde_json::from_slice::<Value>(&output.stdout) {
        return answer_of(&printed).with_context(|| recipe.display().to_string());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.lines().find_map(|line| line.strip_prefix("error: ")) {
        Some(reason) => Ok(Answer::Refused(without_place(reason))),
        None => bail!("{}: neither an answer nor an error: {errors}", recipe.display()),
    }
}

fn answer_of(printed: &Value) -> Result<Answer> {
    let bytes = |path: &str| printed.pointer(path).and_then(Value::as_f64);
    let (Some(total), Some(low), Some(high)) =
        (bytes("/total_bytes"), bytes("/range_bytes/low"), bytes("/range_bytes/high"))
    else {
        bail!("an answer without a range");
    };
    Ok(match bytes("/safe_bytes") {
        None => Answer::Open,
        Some(_) if high <= low => Answer::Exact,
        Some(_) => Answer::Range { width: (high - low) / total },
    })
}

/// A reason without the file and line that it begins with.
fn without_place(reason: &str) -> String {
    match reason.split_once(": ") {
        Some((place, rest)) if place.rsplit(':').next().is_some_and(|number| number.parse::<u64>().is_ok()) => {
            rest.to_owned()
        }
        _ => reason.to_owned(),
    }
}
