//! Names of model types stand in one place: what else knows of a model type asks its row (`core/src/model_type`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tonnage_core::job::generic_model_types;
use tonnage_core::model_type::known_model_types;

use super::source::{code_of, rust_files};

/// Where a model type is named, and built.
const OWN_PLACES: &[&str] =
    &["crates/core/src/model_type/", "crates/core/src/family/", "crates/core/src/model/family/"];
/// Literals elsewhere that are one by chance, or mean no row; each with its reason.
const OTHERS: &[(&str, &str, &str)] = &[
    ("crates/alloc/src/trace.rs", "clip", "a phase"),
    ("crates/core/src/rehearsal/against.rs", "clip", "a phase"),
    ("crates/experiment/src/metric.rs", "clip", "a word of a metric's name"),
    ("crates/core/src/job/builder.rs", "gpt2", "the model of `JobSpec::default`"),
    ("crates/core/src/job/keys/step.rs", "hrm", "a task"),
    ("crates/core/src/job/resolve/job.rs", "hrm", "a task"),
    ("crates/report/src/plot.rs", "opt", "short for the optimizer's phase"),
];

/// Every literal of a model type outside its own place, tests and examples aside.
pub(super) fn stray_types() -> Result<Vec<String>> {
    let names: Vec<_> = known_model_types().into_iter().chain(generic_model_types()).collect();
    let mut problems = Vec::new();
    for file in rust_files(Path::new("crates"))? {
        let path = file.display().to_string();
        let is_apart = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder));
        if is_apart || OWN_PLACES.iter().any(|own| path.starts_with(own)) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| path.clone())?;
        for name in type_literals(&code_of(&text), &names) {
            if !OTHERS.iter().any(|(other, literal, _)| *other == path && *literal == name) {
                problems.push(format!("{path}: \"{name}\" is a model type: ask its row in core/src/model_type"));
            }
        }
    }
    Ok(problems)
}

/// The names that stand as literals of their own in `code`.
fn type_literals<'a>(code: &str, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().filter(|name| code.contains(&format!("\"{name}\""))).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_it_is_a_literal_of_its_own() {
        let found = |text: &str| type_literals(&code_of(text), &["gpt2", "opt"]);
        assert_eq!(found("if model == \"gpt2\" {}"), ["gpt2"]);
        assert!(found("//! \"gpt2\"\nlet x = \"--opt\";\n#[cfg(test)]\nmod tests { \"opt\" }").is_empty());
    }
}
