//! A job file: TOML text becomes settings, each with the line it stands on.

use crate::job::JobErrorKind;
use toml::de::DeTable;

use super::entry::{Source, read_entry};
use super::guides::gpt_file;
use super::settings::Settings;
use super::{JobError, Place};
use crate::limit::JOB_BYTES;

/// Reads the `text` of the job file called `file`.
///
/// # Errors
/// When the text is no TOML, a key is unknown, or a value does not suit its key; with line and column.
pub(super) fn read_job_file(file: &str, text: &str) -> Result<Settings, JobError> {
    if text.len() > JOB_BYTES {
        return Err(JobError::of_kind(
            JobErrorKind::Unreadable,
            format!("{file}: {} bytes are no job file", text.len()),
        ));
    }
    let source = Source { file, text };
    let table = DeTable::parse(text).map_err(|error| broken_toml(source, &error))?;
    let table = table.get_ref();
    if gpt_file::is_one(table) {
        return gpt_file::read_gpt_file(source, table);
    }
    let mut settings = Settings::default();
    for entry in table {
        read_entry(source, &mut settings, entry)?;
    }
    Ok(settings)
}

fn broken_toml(source: Source<'_>, error: &toml::de::Error) -> JobError {
    let place = error.span().map(|span| Place::of_offset(source.file, source.text, span.start));
    JobError::of_kind(JobErrorKind::Unreadable, format!("broken TOML: {}", error.message().replace('\n', ", ")))
        .at_place(place)
        .caused_by(error.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn reads_keys_tables_and_lines() {
        let text = "model = \"gpt2\"\nmicro-batch-size = 4\n\n[lora]\nr = 16\ntargets = \"all-linear\"\n";
        let settings = read_job_file("job.toml", text).unwrap();
        let said = |name| settings.get(name).map(|s| (s.value.clone(), s.origin.to_string()));
        assert_eq!(said("micro_batch_size"), Some((json!(4), "job.toml:2".to_owned())));
        assert_eq!(said("lora.targets"), Some((json!(["all-linear"]), "job.toml:6".to_owned())));
        assert!(settings.has_table("lora"));
    }

    #[test]
    fn reads_a_model_table() {
        let text = "[model]\nname = \"gpt2\"\nn_layer = 2\nrope_parameters = {rope_theta = 1e4}\n";
        let settings = read_job_file("job.toml", text).unwrap();
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
            ("quantize = true", "job.toml:1:1: `quantize` is no key of a job"),
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
            match read_job_file("job.toml", text) {
                Err(error) => assert_eq!(error.to_string(), problem),
                Ok(settings) => assert!(problem.ends_with("unreachable"), "{text}: {settings:?}"),
            }
        }
    }

    #[test]
    fn size_is_bounded() {
        let error = read_job_file("job.toml", &" ".repeat(JOB_BYTES + 1)).unwrap_err();
        assert_eq!(error.to_string(), "job.toml: 65537 bytes are no job file");
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let error = read_job_file("job.toml", &format!("x = {}", "[".repeat(60_000))).unwrap_err();
        assert!(error.to_string().contains("broken TOML"), "{error}");
    }
}
