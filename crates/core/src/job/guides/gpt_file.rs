//! The small-GPT training file (`model_embd`, `model_layer`, ...): a flat TOML of AGI2's trainer's own keys
//! (roby2358/agi2 at 6e54453), read as a job of that trainer so that such a file can be handed over unchanged.

use crate::job::keys;
use serde_json::{Value, json};
use toml::de::{DeTable, DeValue};

use crate::job::JobError;
use crate::job::entry::{Entry, Source, read_entry};
use crate::job::keys::Key;
use crate::job::settings::{Origin, Setting, Settings};
use crate::model_type::AGI2;
use crate::nearest::nearest;

/// Keys that describe the model, and the fields of its config they mean.
const MODEL_KEYS: [(&str, &[&str]); 7] = [
    ("model_positions", &["n_positions"]),
    ("model_embd", &["n_embd"]),
    ("model_layer", &["n_layer"]),
    ("model_head", &["n_head"]),
    ("model_activation", &["activation_function"]),
    ("model_dropout", &["resid_pdrop", "embd_pdrop", "attn_pdrop"]),
    ("vocab_size", &["vocab_size"]),
];
/// What such a model has where nothing is said: the defaults of the trainer's own estimator (estimate_memory.py), with
/// GPT-2's vocabulary, and the activation of its config class.
const MODEL_DEFAULTS: [(&str, u64); 5] =
    [("n_positions", 512), ("n_embd", 384), ("n_layer", 6), ("n_head", 6), ("vocab_size", 50_257)];
/// Where the training script (agi2_train.py) has another default than the estimator.
const SCRIPT_DEFAULTS: [(&str, &str, u64, u64); 3] =
    [("model_embd", "n_embd", 384, 768), ("model_layer", "n_layer", 6, 12), ("model_head", "n_head", 6, 12)];
/// Keys that are keys of a job under another name.
const JOB_KEYS: [(&str, &str); 2] = [("batch_size", keys::MICRO_BATCH_SIZE), ("seq_len", keys::SEQ_LEN)];

/// Keys of training and generation that cost no memory in a step.
const IGNORED: [&str; 22] = [
    "beam_size",
    "corpus_path",
    "device",
    "early_stop_patience",
    "epochs",
    "learning_rate",
    "log_gpu_memory",
    "max_context_length",
    "max_length",
    "model_name",
    "model_path",
    "model_seed",
    "num_workers",
    "pin_memory",
    "resume",
    "save_path",
    "sources",
    "temperature",
    "tokenizer",
    "use_compile",
    "warmup_steps",
    "weight_decay",
];

/// Of these, the ones that training and generating read, under the names they have here.
const OF_TRAINING: [(&str, &str); 12] = [
    ("beam_size", keys::GENERATION_NUM_BEAMS),
    ("corpus_path", keys::DATA_TRAIN_FILES),
    ("epochs", keys::NUM_TRAIN_EPOCHS),
    ("learning_rate", keys::LEARNING_RATE),
    ("max_length", keys::GENERATION_MAX_NEW_TOKENS),
    ("model_seed", keys::SEED),
    ("save_path", keys::OUTPUT_DIR),
    ("sources", keys::DATA_TRAIN_FILES),
    ("temperature", keys::GENERATION_TEMPERATURE),
    ("tokenizer", keys::DATA_TOKENIZER),
    ("warmup_steps", keys::WARMUP_STEPS),
    ("weight_decay", keys::WEIGHT_DECAY),
];

/// Keys of later versions (from d084cc6 on), which learn by the similarity of embeddings and make no logits.
const LATER: [&str; 6] =
    ["anchor_ratio", "geometric_ratio", "seq_len_end", "seq_len_start", "sigmoid_scale_end", "sigmoid_scale_start"];

/// Whether the file is of this kind: only its model keys tell it from a job file.
pub(in crate::job) fn is_one(table: &DeTable<'_>) -> bool {
    MODEL_KEYS[..4].iter().any(|(key, _)| table.contains_key(*key))
}

/// Reads such a file; keys of a job file may stand in it too.
pub(in crate::job) fn read(source: Source<'_>, table: &DeTable<'_>) -> Result<Settings, JobError> {
    let mut settings = defaults()?;
    let mut ignored = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if let Some((_, fields)) = MODEL_KEYS.iter().find(|(ours, _)| *ours == name) {
            fields.iter().for_each(|field| source.set_field(&mut settings, field, (key, value)));
        } else if name == "use_amp" {
            set_precision(source, &mut settings, (key, value))?;
        } else if LATER.contains(&name) || (name == "use_compile" && is_true(value.get_ref())) {
            return Err(not_simulated(name).at(Some(source.place(key))));
        } else if IGNORED.contains(&name) {
            ignored.push(format!("`{name}`"));
            if let Some((_, ours)) = OF_TRAINING.iter().find(|(theirs, _)| *theirs == name) {
                source.set(&mut settings, ours, (key, value))?;
            } else if name == "model_path" {
                output_dir(source, &mut settings, (key, value))?;
            }
        } else if let Some((_, ours)) = JOB_KEYS.iter().find(|(theirs, _)| *theirs == name) {
            source.set(&mut settings, ours, (key, value))?;
        } else {
            if let Some((theirs, ours)) =
                JOB_KEYS.iter().find(|(theirs, ours)| *ours == name && table.contains_key(*theirs) && theirs != ours)
            {
                let error = JobError::new(format!("`{ours}` and `{theirs}` mean the same"))
                    .about(&[ours])
                    .hint("leave one of them out");
                return Err(error.at(Some(source.place(key))));
            }
            known_entry(source, &mut settings, (key, value))?;
        }
    }
    rows_as_long_as_positions(&mut settings)?;
    let notes = notes(&settings, table, &ignored);
    settings.notes.extend(notes);
    Ok(settings)
}

/// `trained/lilwill.pt` is one file of that trainer's; here its checkpoints are a folder of that name.
fn output_dir(source: Source<'_>, settings: &mut Settings, (key, value): Entry<'_>) -> Result<(), JobError> {
    let DeValue::String(path) = value.get_ref() else {
        return Err(JobError::new("`model_path` must be a text in quotes").at(Some(source.place(value))));
    };
    let folder = path.strip_suffix(".pt").unwrap_or(path);
    settings.set(keys::OUTPUT_DIR, &Value::from(folder), Origin::JobFile(source.place(key)))
}

fn is_true(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Boolean(true))
}

fn not_simulated(key: &str) -> JobError {
    let why = match key {
        "use_compile" => "what torch.compile makes of the model is not simulated",
        _ => "a key of later versions of this trainer, which make no logits; their step is not simulated",
    };
    JobError::new(format!("`{key}`: {why}"))
        .about(&[key])
        .hint("measure it without a GPU: tonnage rehearse -- python agi2_train.py FILE.toml")
}

/// Rows, where nobody says how long they are, are as long as the model has positions (agi2_train.py).
fn rows_as_long_as_positions(settings: &mut Settings) -> Result<(), JobError> {
    let is_default = settings.get(keys::SEQ_LEN).is_none_or(|set| matches!(set.origin, Origin::Default(_)));
    let positions = settings.model.get("n_positions").and_then(|setting| setting.value.as_u64());
    match positions.filter(|positions| *positions > 0 && is_default) {
        Some(positions) => {
            settings.set(keys::SEQ_LEN, &positions.into(), Origin::Default("the model's positions".to_owned()))
        }
        None => Ok(()),
    }
}

/// Whose defaults they are.
pub(in crate::job) const OF_AGI2: &str = "AGI2's trainer's";

fn defaults() -> Result<Settings, JobError> {
    let mut settings = Settings::default();
    let origin = || Origin::Default(OF_AGI2.to_owned());
    let mut field =
        |name: &str, value: Value| settings.model.insert(name.to_owned(), Setting { value, origin: origin() });
    field("model_type", AGI2.into());
    field("activation_function", "gelu".into());
    for (name, value) in MODEL_DEFAULTS {
        field(name, value.into());
    }
    settings.set(keys::MICRO_BATCH_SIZE, &4.into(), origin())?;
    settings.set(keys::SEQ_LEN, &512.into(), origin())?;
    for (key, value) in of_the_loop() {
        settings.set(key, &value, origin())?;
    }
    settings.set(keys::FRAMEWORK, &"loop".into(), origin())?;
    Ok(settings)
}

/// What the loop does whatever a file says. A step's logits live until the next has its own, so that blocks find their
/// places later than in other loops: some peaks come in the third or fourth step.
pub(in crate::job) fn of_the_loop() -> [(&'static str, Value); 6] {
    [
        (keys::ATTENTION, json!("eager")),
        (keys::CLIP_GRAD_NORM, json!(1.0)),
        (keys::OPTIMIZER, json!("adamw")),
        (keys::PRECISION, json!("fp32")),
        (keys::STEPS, json!(8)),
        (keys::USE_CACHE, json!(false)),
    ]
}

/// `use_amp` is that trainer's fp16 autocast with a GradScaler.
fn set_precision(source: Source<'_>, settings: &mut Settings, (key, value): Entry<'_>) -> Result<(), JobError> {
    let DeValue::Boolean(on) = value.get_ref() else {
        return Err(JobError::new("`use_amp` must be true or false").at(Some(source.place(value))));
    };
    let precision = if *on { "amp-fp16" } else { "fp32" };
    settings.set(keys::PRECISION, &Value::from(precision), Origin::JobFile(source.place(key)))
}

fn known_entry(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), JobError> {
    let name = entry.0.get_ref();
    read_entry(source, settings, entry).map_err(|error| {
        let ours = MODEL_KEYS.iter().map(|(key, _)| *key).chain(IGNORED).chain(["use_amp", "batch_size"]);
        match nearest(name, ours) {
            Some(meant) if Key::find(name).is_none() => error.hint(format!("did you mean `{meant}`?")),
            _ => error,
        }
    })
}

fn notes(settings: &Settings, table: &DeTable<'_>, ignored: &[String]) -> Vec<String> {
    let said = |key: &str| table.contains_key(key);
    let mut notes = vec![
        "a small-GPT training file: estimated as AGI2's own trainer runs it (roby2358/agi2 at 6e54453)".to_owned(),
    ];
    let unsaid: Vec<String> = SCRIPT_DEFAULTS
        .iter()
        .filter(|(key, field, ours, _)| !said(key) && settings.model.get(*field).is_some_and(|set| set.value == *ours))
        .map(|(key, _, ours, script)| format!("`{key}` = {ours} (the training script takes {script})"))
        .collect();
    if !unsaid.is_empty() {
        notes.push(format!("not said, so as that trainer's estimator has it: {}", unsaid.join(", ")));
    }
    if !said("vocab_size") {
        notes.push(
            "vocabulary: GPT-2's 50,257, as that trainer's estimator has it; a run prints the size of its own: `vocab_size`"
                .to_owned(),
        );
    }
    if !ignored.is_empty() {
        notes.push(format!("ignored, for they cost no memory in a step: {}", ignored.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::job::job_file;

    #[test]
    fn reads_the_trainers_file_as_its_own_job() {
        let text = "sources = [\"a.txt\"]\nbatch_size = 24\nseq_len = 256\nlearning_rate = 1e-4\n\
            model_embd = 384\nmodel_dropout = 0.0\nuse_amp = true\ngpu = \"t4\"\n";
        let settings = job_file::read("lilwill.toml", text).unwrap();
        let said = |name| settings.get(name).map(|setting| setting.value.clone());
        assert_eq!(said("micro_batch_size"), Some(json!(24)));
        assert_eq!(said("seq_len"), Some(json!(256)));
        assert_eq!(said("precision"), Some(json!("amp-fp16")));
        assert_eq!(said("clip_grad_norm"), Some(json!(1.0)));
        assert_eq!(said("gpu"), Some(json!("t4")));
        let fields = settings.model_fields();
        assert_eq!((&fields["model_type"], &fields["n_layer"]), (&json!("agi2"), &json!(6)));
        assert_eq!((&fields["vocab_size"], &fields["attn_pdrop"]), (&json!(50_257), &json!(0.0)));
        assert_eq!(fields["activation_function"], json!("gelu"));
        let unsaid = "not said, so as that trainer's estimator has it: `model_layer` = 6 (the training script takes 12), \
            `model_head` = 6 (the training script takes 12)";
        assert_eq!(settings.notes[1], unsaid);
        assert!(settings.notes[2].starts_with("vocabulary: GPT-2's 50,257"));
        assert_eq!(settings.notes[3], "ignored, for they cost no memory in a step: `learning_rate`, `sources`");
    }

    #[test]
    fn rows_are_as_long_as_the_positions_unless_said() {
        for (text, tokens) in [
            ("model_embd = 8", 512),
            ("model_positions = 2048", 2048),
            ("model_positions = 64", 64),
            ("model_positions = 64\nseq_len = 1024", 1024),
        ] {
            let settings = job_file::read("a.toml", text).unwrap();
            assert_eq!(settings.get("seq_len").unwrap().value, json!(tokens), "{text}");
        }
    }

    #[test]
    fn what_would_be_another_step_is_refused_with_the_way_out() {
        for (text, problem) in [
            ("model_embd = 8\ngeometric_ratio = 0.7", "a.toml:2:1: `geometric_ratio`: a key of later versions"),
            ("model_embd = 8\nseq_len_start = 2", "a.toml:2:1: `seq_len_start`: a key of later versions"),
            ("model_embd = 8\nuse_compile = true", "a.toml:2:1: `use_compile`: what torch.compile makes"),
        ] {
            let error = job_file::read("a.toml", text).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
            assert!(error.hint.unwrap().contains("tonnage rehearse"));
        }
        assert!(job_file::read("a.toml", "model_embd = 8\nuse_compile = false").is_ok());
    }

    #[test]
    fn two_words_for_the_batch_are_one_too_many() {
        let error = job_file::read("a.toml", "model_embd = 8\nbatch_size = 4\nmicro_batch_size = 8").unwrap_err();
        assert_eq!(error.to_string(), "a.toml:3:1: `micro_batch_size` and `batch_size` mean the same");
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
