//! Names of a job's keys stand in one place, `core/src/job/key_names.rs`: what else sets or reads a key says its constant.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tonnage_core::job::KEYS;

use super::source::{code_of, rust_files};

/// Where the names are written.
const OWN_PLACE: &str = "crates/core/src/job/key_names.rs";
/// Where keys are those of other programs, some of which are called as ours are.
const OTHERS_KEYS: &str = "crates/config/";
/// Where a key of one word (`model`, `loss`) is a key; elsewhere it may be a column, a metric or an argument.
const ABOUT_JOBS: &[&str] = &["crates/core/src/job/", "crates/core/src/plan/"];
/// Literals that are a key's name by chance: the file or folder, the literal, and whose word it is there.
const OTHERS: &[(&str, &str, &str)] = &[
    ("crates/core/src/family/", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/model/", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/job/case/", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/job/check/task.rs", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/family/vision/", "image_size", "a field of Hugging Face's configs"),
    ("crates/core/src/model/family/", "image_size", "a field of Hugging Face's configs"),
    ("crates/core/src/model_type/vision.rs", "image_size", "a field of Hugging Face's configs"),
    ("crates/core/src/job/config_fields.rs", "image_size", "a field of Hugging Face's configs"),
    ("crates/core/src/job/image.rs", "image_size", "a field of Hugging Face's configs"),
    ("crates/core/src/job/vision.rs", "image_size", "a field of Hugging Face's configs"),
    ("crates/core/src/job/guides/gpt_file.rs", "seq_len", "a key of the small GPT's own files"),
    ("crates/core/src/job/guides/gpt_file.rs", "learning_rate", "a key of the small GPT's own files"),
    ("crates/core/src/job/guides/gpt_file.rs", "warmup_steps", "a key of the small GPT's own files"),
    ("crates/core/src/job/guides/gpt_file.rs", "weight_decay", "a key of the small GPT's own files"),
    ("crates/core/src/progress/measurements.rs", "learning_rate", "a word of other programs' logs"),
    ("crates/suite/src/expand/tests.rs", "learning_rate", "a parameter of a suite's command"),
    ("crates/suite/src/scaling.rs", "learning_rate", "a parameter of a suite's command"),
    ("crates/core/src/job/hf.rs", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/job/config_fields.rs", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/job/config_fields.rs", "use_cache", "a field of Hugging Face's configs"),
    ("crates/core/src/job/config_fields.rs", "seq_len", "a field of HRM's config"),
    ("crates/core/src/job/resolve/chooser.rs", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/core/src/model_type/rows.rs", "seq_len", "a field of HRM's config"),
    ("crates/core/src/parallel/share.rs", "tie_word_embeddings", "a field of Hugging Face's configs"),
    ("crates/run/src/adapter/deepspeed.rs", "gradient_accumulation_steps", "DeepSpeed's"),
    ("crates/run/src/adapter/walk.rs", "gradient_accumulation_steps", "DeepSpeed's, in a test"),
    ("crates/core/src/job/case/mod.rs", "parallel", "a kind of reference case"),
    ("crates/core/src/job/hf.rs", "model", "the end of a class's name"),
    ("crates/core/src/job/keys/step.rs", "trl", "a value of `framework`"),
    ("crates/core/src/job/words/values.rs", "trl", "a value of `framework`"),
    ("crates/core/src/job/words/values.rs", "transformers", "a word for a value of `framework`"),
    ("crates/core/src/plan/framework/mod.rs", "trl", "a value of `framework`"),
];

/// Every literal of a key's name outside its own place, tests and examples aside; and exceptions that nothing needs.
pub(super) fn stray_keys() -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut needed = vec![false; OTHERS.len()];
    for file in rust_files(Path::new("crates"))? {
        let path = file.display().to_string();
        let is_apart = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder));
        if is_apart || path == OWN_PLACE || path.starts_with(OTHERS_KEYS) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| path.clone())?;
        for name in key_literals(&code_of(&text), &path) {
            match OTHERS.iter().position(|(place, literal, _)| path.starts_with(place) && *literal == name) {
                Some(other) => needed[other] = true,
                None => problems.push(format!("{path}: \"{name}\" is a key of jobs: say its constant of {OWN_PLACE}")),
            }
        }
    }
    let idle = OTHERS.iter().zip(needed).filter(|(_, needed)| !needed);
    problems
        .extend(idle.map(|((place, literal, _), _)| format!("{place} has no \"{literal}\" any more: drop it here")));
    Ok(problems)
}

/// The keys' names that stand as literals of their own in the code of the file at `path`.
fn key_literals(code: &str, path: &str) -> Vec<&'static str> {
    let is_about_jobs = ABOUT_JOBS.iter().any(|place| path.starts_with(place));
    let names = KEYS.iter().map(|key| key.name).filter(|name| is_about_jobs || name.contains(['_', '.']));
    names.filter(|name| code.contains(&format!("\"{name}\""))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_where_it_is_a_literal_of_its_own() {
        assert_eq!(key_literals("set(\"micro_batch_size\", 4)", "crates/run/src/a.rs"), ["micro_batch_size"]);
        assert_eq!(key_literals("(\"loss\", 4)", "crates/core/src/plan/a.rs"), ["loss"]);
        assert!(key_literals("(\"loss\", \"the micro_batch_size\")", "crates/report/src/a.rs").is_empty());
    }
}
