//! The small-GPT training file (`model_embd`, `model_layer`, ...): a flat TOML of a trainer's own keys, read as a GPT-2
//! job so that such a file can be handed over unchanged.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::SpecError;
use super::job_file::{Entry, Source, read_entry};
use super::keys::Key;
use super::settings::{Origin, Setting, Settings};
use crate::nearest::nearest;

/// Keys that describe the model, and the GPT-2 config fields they mean.
const MODEL_KEYS: [(&str, &[&str]); 7] = [
    ("model_positions", &["n_positions"]),
    ("model_embd", &["n_embd"]),
    ("model_layer", &["n_layer"]),
    ("model_head", &["n_head"]),
    ("model_activation", &["activation_function"]),
    ("model_dropout", &["resid_pdrop", "embd_pdrop", "attn_pdrop"]),
    ("vocab_size", &["vocab_size"]),
];
/// What such a model has where the file is silent: the defaults of the trainer's own estimator; the vocabulary is
/// GPT-2's.
const MODEL_DEFAULTS: [(&str, u64); 5] =
    [("n_positions", 512), ("n_embd", 384), ("n_layer", 6), ("n_head", 6), ("vocab_size", 50_257)];

/// Keys that are keys of a job under another name; of two that mean the same, the later wins.
const JOB_KEYS: [(&str, &str); 3] =
    [("batch_size", "micro_batch_size"), ("seq_len_end", "seq_len"), ("seq_len", "seq_len")];

/// Keys of training and generation that cost no memory in a step.
const IGNORED: [&str; 24] = [
    "anchor_ratio",
    "beam_size",
    "corpus_path",
    "device",
    "early_stop_patience",
    "epochs",
    "geometric_ratio",
    "learning_rate",
    "max_context_length",
    "max_length",
    "model_name",
    "model_path",
    "model_seed",
    "resume",
    "save_path",
    "seq_len_start",
    "sigmoid_scale_end",
    "sigmoid_scale_start",
    "sources",
    "temperature",
    "tokenizer",
    "use_compile",
    "warmup_steps",
    "weight_decay",
];

/// Whether the file is of this kind: only its model keys tell it from a job file.
pub(super) fn is_one(table: &DeTable<'_>) -> bool {
    MODEL_KEYS[..4].iter().any(|(key, _)| table.contains_key(*key))
}

/// Reads such a file; keys of a job file may stand in it too.
pub(super) fn read(source: Source<'_>, table: &DeTable<'_>) -> Result<Settings, SpecError> {
    let mut settings = defaults()?;
    let mut ignored = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if let Some((_, fields)) = MODEL_KEYS.iter().find(|(ours, _)| *ours == name) {
            fields.iter().for_each(|field| source.set_field(&mut settings, field, (key, value)));
        } else if name == "use_amp" {
            set_precision(source, &mut settings, (key, value))?;
        } else if IGNORED.contains(&name) {
            ignored.push(format!("`{name}`"));
        } else if !JOB_KEYS.iter().any(|(ours, _)| *ours == name) {
            known_entry(source, &mut settings, (key, value))?;
        }
    }
    for (ours, name) in JOB_KEYS {
        if let Some((key, value)) = table.get_key_value(ours) {
            source.set(&mut settings, name, (key, value))?;
        }
    }
    shorten(&mut settings)?;
    settings.notes.extend(notes(&ignored));
    Ok(settings)
}

/// The trainer's rows, where nobody says how long they are, are no longer than the model's positions.
fn shorten(settings: &mut Settings) -> Result<(), SpecError> {
    let is_default =
        |(key, setting): (&str, &Setting)| key == "seq_len" && matches!(setting.origin, Origin::Default(_));
    let positions = settings.model.get("n_positions").and_then(|setting| setting.value.as_u64());
    match positions.filter(|positions| (1..512).contains(positions)) {
        Some(positions) if settings.keys().any(is_default) => {
            settings.set("seq_len", &positions.into(), Origin::Default("the model's positions".to_owned()))
        }
        _ => Ok(()),
    }
}

fn defaults() -> Result<Settings, SpecError> {
    let mut settings = Settings::default();
    let origin = || Origin::Default("the small-GPT trainer's".to_owned());
    settings.model.insert("model_type".to_owned(), Setting { value: "gpt2".into(), origin: origin() });
    for (field, value) in MODEL_DEFAULTS {
        settings.model.insert(field.to_owned(), Setting { value: value.into(), origin: origin() });
    }
    settings.set("micro_batch_size", &4.into(), origin())?;
    settings.set("seq_len", &512.into(), origin())?;
    Ok(settings)
}

/// `use_amp` is that trainer's fp16 autocast with a GradScaler.
fn set_precision(source: Source<'_>, settings: &mut Settings, (key, value): Entry<'_>) -> Result<(), SpecError> {
    let DeValue::Boolean(on) = value.get_ref() else {
        return Err(SpecError::new("`use_amp` must be true or false").at(Some(source.place(value))));
    };
    let precision = if *on { "amp-fp16" } else { "fp32" };
    settings.set("precision", &Value::from(precision), Origin::JobFile(source.place(key)))
}

fn known_entry(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), SpecError> {
    let name = entry.0.get_ref();
    read_entry(source, settings, entry).map_err(|error| {
        let ours = MODEL_KEYS.iter().map(|(key, _)| *key).chain(IGNORED).chain(["use_amp", "batch_size"]);
        match nearest(name, ours) {
            Some(meant) if Key::find(name).is_none() => error.hint(format!("did you mean `{meant}`?")),
            _ => error,
        }
    })
}

fn notes(ignored: &[String]) -> Vec<String> {
    let mut notes = vec!["a small-GPT training file: estimated as Hugging Face's GPT-2 of these sizes".to_owned()];
    if !ignored.is_empty() {
        notes.push(format!("ignored, for they cost no memory in a step: {}", ignored.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::job_file;

    #[test]
    fn reads_the_trainers_file_as_gpt2() {
        let text = "sources = [\"a.txt\"]\nbatch_size = 24\nseq_len_start = 2\nseq_len_end = 256\nlearning_rate = 1e-4\n\
            model_embd = 384\nmodel_dropout = 0.0\nuse_amp = true\ngpu = \"t4\"\n";
        let settings = job_file::read("lilwill.toml", text).unwrap();
        let said = |name| settings.get(name).map(|setting| setting.value.clone());
        assert_eq!(said("micro_batch_size"), Some(json!(24)));
        assert_eq!(said("seq_len"), Some(json!(256)));
        assert_eq!(said("precision"), Some(json!("amp-fp16")));
        assert_eq!(said("gpu"), Some(json!("t4")));
        let fields = settings.model_fields();
        assert_eq!((&fields["model_type"], &fields["n_layer"]), (&json!("gpt2"), &json!(6)));
        assert_eq!((&fields["vocab_size"], &fields["attn_pdrop"]), (&json!(50_257), &json!(0.0)));
        let ignored = "ignored, for they cost no memory in a step: `learning_rate`, `seq_len_start`, `sources`";
        assert_eq!(settings.notes[1], ignored);
    }

    #[test]
    fn seq_len_wins_over_its_schedule() {
        for text in ["model_embd = 8\nseq_len = 64\nseq_len_end = 32", "model_embd = 8\nseq_len_end = 32\nseq_len = 64"]
        {
            let settings = job_file::read("a.toml", text).unwrap();
            assert_eq!(settings.get("seq_len").unwrap().value, json!(64));
        }
    }

    #[test]
    fn refuses_unknown_keys_with_the_trainers_names_in_mind() {
        let cases = [
            (
                "model_embd = 8\nmodel_layers = 2",
                "a.toml:2:1: unknown key `model_layers`",
                "did you mean `model_layer`?",
            ),
            ("model_embd = 8\nuse_amp = 1", "a.toml:2:11: `use_amp` must be true or false", ""),
        ];
        for (text, problem, hint) in cases {
            let error = job_file::read("a.toml", text).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint.as_deref().unwrap_or("")), (problem, hint));
        }
    }
}
