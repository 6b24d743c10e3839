//! Errors of jobs name their key and stand where the job file sets it, whatever their sentences say.

use std::error::Error as _;

use tonnage_core::job::{JobError, JobErrorKind, JobSource, KEYS, Kind, keys};

fn error(file: &str) -> JobError {
    JobSource::from_file("job.toml", file).resolve(&[]).expect_err(file)
}

fn line(error: &JobError) -> Option<usize> {
    error.place.as_ref().map(|place| place.line)
}

#[test]
fn a_value_that_a_key_does_not_take_is_placed_at_that_key() {
    for key in &KEYS {
        let bad = if matches!(key.kind, Kind::Texts) { "[1]" } else { "\"\"" };
        let model = if key.name == keys::MODEL { "" } else { "model = \"gpt2\"" };
        let file = match key.name.split_once('.') {
            Some((table, name)) => format!("{model}\n[{table}]\n\n{name} = {bad}\n"),
            None => format!("{model}\n\n\n{} = {bad}\n", key.name),
        };
        let error = error(&file);
        assert_eq!((error.kind, error.key()), (JobErrorKind::Value, Some(key.name)), "{error}");
        assert_eq!(line(&error), Some(4), "{error}");
    }
}

#[test]
fn a_job_that_cannot_be_is_placed_at_the_key_at_fault() {
    let cases = [
        ("model = \"gpt2\"\n\nseq_len = 2048", keys::SEQ_LEN, 3, JobErrorKind::Refused),
        ("model = \"gpt2\"\ntask = \"masked_lm\"", keys::TASK, 2, JobErrorKind::Refused),
        ("model = \"gpt2\"\n\nlogits_to_keep = 1", keys::LOGITS_TO_KEEP, 3, JobErrorKind::Refused),
        ("model = \"gpt2\"\ntask = \"grpo\"\n\nnum_generations = 1", keys::NUM_GENERATIONS, 4, JobErrorKind::Refused),
        ("model = \"gpt2\"\n[lora]\nr = 8\n\ntargets = []", keys::LORA_TARGETS, 5, JobErrorKind::Value),
        ("model = \"gpt2\"\n\n[grpo]\nbeta = 0.1", keys::GRPO_BETA, 4, JobErrorKind::Refused),
        ("model = \"gpt2\"\n\n[grpo]\nepsilon = 0.1", keys::GRPO_EPSILON, 4, JobErrorKind::Refused),
        ("model = \"gpt2\"\ngpu = \"a100\"", keys::GPU, 2, JobErrorKind::Value),
        ("model = \"gtp2\"", keys::MODEL, 1, JobErrorKind::Model),
        ("model = \"gpt2\"\nworld_size = 8\nparallel = \"none\"", keys::WORLD_SIZE, 2, JobErrorKind::Refused),
    ];
    for (file, key, at, kind) in cases {
        let error = error(file);
        assert_eq!((error.key(), line(&error), error.kind), (Some(key), Some(at), kind), "{error}");
    }
}

#[test]
fn another_sentence_moves_no_place() {
    let file = "model = \"gpt2\"\nmicro_batch_size = 4\n\nseq_len = 64";
    let resolved = JobSource::from_file("job.toml", file).resolve(&[]).unwrap();
    let about = JobError::new("too long").hint("lower `micro_batch_size`").about(&[keys::STEPS, keys::SEQ_LEN]);
    assert_eq!(line(&resolved.locate_job(about)), Some(4), "the first of its keys that the file sets");
    let sentence = JobError::new("`seq_len` is named, but no key is").hint("set `micro_batch_size`");
    assert_eq!(line(&resolved.locate_job(sentence)), None, "no sentence is searched");
}

#[test]
fn kinds_tell_texts_keys_and_what_is_not_simulated_apart() {
    let cases = [
        ("model = ", JobErrorKind::Unreadable),
        ("model = \"gpt2\"\nseq_lem = 4", JobErrorKind::UnknownKey),
        ("model = \"sentence-transformers/all-mpnet-base-v2\"", JobErrorKind::Unsimulated),
    ];
    for (file, kind) in cases {
        assert_eq!(error(file).kind, kind, "{file}");
    }
    assert!(
        error("model = ").source().is_some_and(|cause| cause.to_string().contains("TOML")),
        "the parser's own error"
    );
    let gpu = error("model = \"gpt2\"\ngpu = \"a100\"");
    assert!(gpu.source().is_some() && error("model = \"gpt2\"\nseq_len = 2048").source().is_none());
}
