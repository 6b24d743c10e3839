//! The small-GPT training file (`model_embd`, `model_layer`, ...): a flat TOML of AGI2's trainer's own keys
//! (roby2358/agi2 at 6e54453), read as a job of that trainer so that such a file can be handed over unchanged.

use crate::job::keys;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::job::JobError;
use crate::job::entry::{Entry, Source, read_entry};
use crate::job::keys::Key;
use crate::job::settings::{Origin, Setting, Settings};
use crate::model_type::AGI2;
use crate::nearest::nearest;

/// What becomes of a key of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallGptKey {
    /// Fields of the model's config.
    Field(&'static [&'static str]),
    /// A key of a job that sizes a step.
    Step(&'static str),
    /// A key of a job that training and generating read; an estimate ignores it with a note.
    Training(&'static str),
    /// `use_amp`: that trainer's fp16 autocast with a GradScaler.
    Amp,
    /// `device`: `cpu` is meant, all else is as there is a GPU or not.
    Device,
    /// `model_path`: the folder of checkpoints is called like that trainer's one file.
    ModelPath,
    /// `model_name`: that trainer saves to `trained/` and the name, where no path is said.
    ModelName,
    /// `resume`: a text that may be empty.
    Resume,
    /// `tokenizer`: `char` and `basic` are characters.
    Tokenizer,
    /// Nothing here goes by it, for this reason.
    Unneeded(&'static str),
    /// `use_compile`: refused where it is on.
    Compile,
    /// Of later versions (from d084cc6 on), which learn by the similarity of embeddings and make no logits: refused.
    Similarity,
}

use SmallGptKey::{
    Amp, Compile, Device, Field, ModelName, ModelPath, Resume, Similarity, Step, Tokenizer, Training, Unneeded,
};

/// Why nothing is said to workers that load data.
const IN_MEMORY: &str = "the data lies in memory as tokens, no worker loads it";

/// Every key of such a file, with what becomes of it.
pub const SMALL_GPT_KEYS: [(&str, SmallGptKey); 41] = [
    ("model_positions", Field(&["n_positions"])),
    ("model_embd", Field(&["n_embd"])),
    ("model_layer", Field(&["n_layer"])),
    ("model_head", Field(&["n_head"])),
    ("model_activation", Field(&["activation_function"])),
    ("model_dropout", Field(&["resid_pdrop", "embd_pdrop", "attn_pdrop"])),
    ("vocab_size", Field(&["vocab_size"])),
    ("batch_size", Step(keys::MICRO_BATCH_SIZE)),
    ("seq_len", Step(keys::SEQ_LEN)),
    ("seq_len_end", Step(keys::SEQ_LEN)),
    (keys::SEQ_LEN_START, Step(keys::SEQ_LEN_START)),
    ("use_amp", Amp),
    ("beam_size", Training(keys::GENERATION_NUM_BEAMS)),
    ("corpus_path", Training(keys::DATA_TRAIN_FILES)),
    ("early_stop_patience", Training(keys::EARLY_STOPPING_PATIENCE)),
    ("epochs", Training(keys::NUM_TRAIN_EPOCHS)),
    ("learning_rate", Training(keys::LEARNING_RATE)),
    ("max_length", Training(keys::GENERATION_MAX_NEW_TOKENS)),
    // A text, however it is called: agi2_generate.py writes it before what is typed.
    ("model_seed", Training(keys::GENERATION_PROMPT)),
    ("save_path", Training(keys::OUTPUT_DIR)),
    ("sources", Training(keys::DATA_TRAIN_FILES)),
    ("temperature", Training(keys::GENERATION_TEMPERATURE)),
    ("warmup_steps", Training(keys::WARMUP_STEPS)),
    ("weight_decay", Training(keys::WEIGHT_DECAY)),
    ("device", Device),
    ("model_name", ModelName),
    ("model_path", ModelPath),
    ("resume", Resume),
    ("tokenizer", Tokenizer),
    ("log_gpu_memory", Unneeded("memory is measured and written down in any case")),
    ("max_context_length", Unneeded("what is typed is continued by itself, without what came before")),
    ("num_workers", Unneeded(IN_MEMORY)),
    ("pin_memory", Unneeded(IN_MEMORY)),
    ("use_compile", Compile),
    ("anchor_ratio", Similarity),
    ("curriculum_stage", Similarity),
    ("embedding_ratio", Similarity),
    ("geometric_ratio", Similarity),
    ("sigmoid_scale", Similarity),
    ("sigmoid_scale_end", Similarity),
    ("sigmoid_scale_start", Similarity),
];

/// What such a model has where nothing is said: the defaults of the trainer's own estimator (estimate_memory.py), with
/// GPT-2's vocabulary, and the activation of its config class.
const MODEL_DEFAULTS: [(&str, u64); 5] =
    [("n_positions", 512), ("n_embd", 384), ("n_layer", 6), ("n_head", 6), ("vocab_size", 50_257)];
/// Where the training script (agi2_train.py) has another default than the estimator.
const SCRIPT_DEFAULTS: [(&str, &str, u64, u64); 3] =
    [("model_embd", "n_embd", 384, 768), ("model_layer", "n_layer", 6, 12), ("model_head", "n_head", 6, 12)];
/// Whether the file is of this kind: only its model keys tell it from a job file.
pub(in crate::job) fn is_one(table: &DeTable<'_>) -> bool {
    ["model_positions", "model_embd", "model_layer", "model_head"].iter().any(|key| table.contains_key(*key))
}

/// What becomes of a key.
fn meaning(name: &str) -> Option<SmallGptKey> {
    SMALL_GPT_KEYS.iter().find(|(key, _)| *key == name).map(|(_, meaning)| *meaning)
}

/// Reads such a file; keys of a job file may stand in it too.
pub(in crate::job) fn read_gpt_file(source: Source<'_>, table: &DeTable<'_>) -> Result<Settings, JobError> {
    let mut settings = gpt_defaults()?;
    for (key, value) in table {
        read_key(source, &mut settings, table, (key, value))?;
    }
    rows_as_long_as_positions(&mut settings)?;
    let notes = gpt_notes(&settings, table);
    settings.notes.extend(notes);
    Ok(settings)
}

fn read_key(
    source: Source<'_>,
    settings: &mut Settings,
    table: &DeTable<'_>,
    entry: Entry<'_>,
) -> Result<(), JobError> {
    let (key, value) = entry;
    let name = key.get_ref().as_ref();
    match meaning(name) {
        Some(Field(fields)) => {
            fields.iter().for_each(|field| source.set_field(settings, field, entry));
            Ok(())
        }
        Some(Step(ours) | Training(ours)) => {
            only_one(source, table, name, ours, key)?;
            if name == "model_seed" {
                return prompt(source, settings, entry);
            }
            source.set_entry(settings, ours, entry)
        }
        Some(Amp) => set_precision(source, settings, entry),
        Some(Device) => device(source, settings, entry),
        Some(ModelPath) => output_dir(source, settings, entry, ""),
        Some(ModelName) if table.contains_key("model_path") || table.contains_key("save_path") => Ok(()),
        Some(ModelName) => output_dir(source, settings, entry, "trained/"),
        Some(Resume) if text(source, entry)?.is_empty() => Ok(()),
        Some(Resume) => source.set_entry(settings, keys::RESUME_FROM_CHECKPOINT, entry),
        Some(Tokenizer) => tokenizer(source, settings, entry),
        Some(Unneeded(_)) => Ok(()),
        Some(Compile) if !is_true(value.get_ref()) => Ok(()),
        Some(Compile | Similarity) => Err(not_simulated(name).at_place(Some(source.place_of(key)))),
        None => {
            only_one(source, table, name, name, key)?;
            known_entry(source, settings, entry)
        }
    }
}

/// Refuses a second word for a key: the file's own order decides nothing.
fn only_one(
    source: Source<'_>,
    table: &DeTable<'_>,
    name: &str,
    ours: &str,
    key: &Spanned<std::borrow::Cow<'_, str>>,
) -> Result<(), JobError> {
    let same = |known: &SmallGptKey| matches!(known, Step(other) | Training(other) if *other == ours);
    let other =
        SMALL_GPT_KEYS.iter().find(|(other, known)| *other != name && same(known) && table.contains_key(*other));
    match other {
        // Said where it is found first, which is once.
        Some((other, _)) if *other < name || meaning(name).is_none() => {
            let error = JobError::new(format!("`{name}` and `{other}` mean the same")).about(&[ours]);
            Err(error.hint("leave one of them out").at_place(Some(source.place_of(key))))
        }
        _ => Ok(()),
    }
}

fn text<'t>(source: Source<'_>, (key, value): Entry<'t>) -> Result<&'t str, JobError> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text),
        _ => Err(JobError::new(format!("`{}` must be a text in quotes", key.get_ref()))
            .at_place(Some(source.place_of(value)))),
    }
}

/// An empty text is none.
fn prompt(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), JobError> {
    let error = |error: JobError| error.hint("it is what generating begins with; chance is decided by `seed`");
    match text(source, entry).map_err(error)? {
        "" => Ok(()),
        _ => source.set_entry(settings, keys::GENERATION_PROMPT, entry),
    }
}

fn device(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), JobError> {
    let of_cpu = text(source, entry)?.eq_ignore_ascii_case("cpu");
    if of_cpu { settings.set(keys::USE_CPU, &true.into(), Origin::JobFile(source.place_of(entry.0))) } else { Ok(()) }
}

fn tokenizer(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), JobError> {
    let named = match text(source, entry)? {
        "char" | "basic" => "characters",
        named => named,
    };
    settings.set(keys::DATA_TOKENIZER, &Value::from(named), Origin::JobFile(source.place_of(entry.0)))
}

/// `trained/lilwill.pt` is one file of that trainer's; here its checkpoints are a folder of that name.
fn output_dir(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>, below: &str) -> Result<(), JobError> {
    let path = text(source, entry)?;
    let folder = format!("{below}{}", path.strip_suffix(".pt").unwrap_or(path));
    settings.set(keys::OUTPUT_DIR, &Value::from(folder), Origin::JobFile(source.place_of(entry.0)))
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

fn gpt_defaults() -> Result<Settings, JobError> {
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
        return Err(JobError::new("`use_amp` must be true or false").at_place(Some(source.place_of(value))));
    };
    let precision = if *on { "amp-fp16" } else { "fp32" };
    settings.set(keys::PRECISION, &Value::from(precision), Origin::JobFile(source.place_of(key)))
}

fn known_entry(source: Source<'_>, settings: &mut Settings, entry: Entry<'_>) -> Result<(), JobError> {
    let name = entry.0.get_ref();
    read_entry(source, settings, entry).map_err(|error| {
        match nearest(name, SMALL_GPT_KEYS.iter().map(|(key, _)| *key)) {
            Some(meant) if Key::find(name).is_none() => error.hint(format!("did you mean `{meant}`?")),
            _ => error,
        }
    })
}

/// Keys of the file that cost no memory in a step.
fn ignored(table: &DeTable<'_>) -> Vec<String> {
    let costs_nothing = |name: &str| !matches!(meaning(name), Some(Field(_) | Step(_) | Amp) | None);
    let names = table.keys().map(|key| key.get_ref().as_ref());
    names.filter(|name| costs_nothing(name)).map(|name| format!("`{name}`")).collect()
}

fn gpt_notes(settings: &Settings, table: &DeTable<'_>) -> Vec<String> {
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
    let ignored = ignored(table);
    if !ignored.is_empty() {
        notes.push(format!("ignored, for they cost no memory in a step: {}", ignored.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::job::{JobSource, RowGrowth, job_file};

    #[test]
    fn reads_the_trainers_file_as_its_own_job() {
        let text = "sources = [\"a.txt\"]\nbatch_size = 24\nseq_len = 256\nlearning_rate = 1e-4\n\
            model_embd = 384\nmodel_dropout = 0.0\nuse_amp = true\ngpu = \"t4\"\n";
        let settings = job_file::read_job_file("lilwill.toml", text).unwrap();
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
            let settings = job_file::read_job_file("a.toml", text).unwrap();
            assert_eq!(settings.get("seq_len").unwrap().value, json!(tokens), "{text}");
        }
    }

    #[test]
    fn what_would_be_another_step_is_refused_with_the_way_out() {
        for (text, problem) in [
            ("model_embd = 8\ngeometric_ratio = 0.7", "a.toml:2:1: `geometric_ratio`: a key of later versions"),
            ("model_embd = 8\nsigmoid_scale_end = 2", "a.toml:2:1: `sigmoid_scale_end`: a key of later versions"),
            ("model_embd = 8\nuse_compile = true", "a.toml:2:1: `use_compile`: what torch.compile makes"),
        ] {
            let error = job_file::read_job_file("a.toml", text).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
            assert!(error.hint.unwrap().contains("tonnage rehearse"));
        }
        assert!(job_file::read_job_file("a.toml", "model_embd = 8\nuse_compile = false").is_ok());
    }

    #[test]
    fn two_words_for_one_thing_are_one_too_many() {
        let error =
            |text: &str| job_file::read_job_file("a.toml", &format!("model_embd = 8\n{text}")).unwrap_err().to_string();
        let same = "a.toml:3:1: `micro_batch_size` and `batch_size` mean the same";
        assert_eq!(error("batch_size = 4\nmicro_batch_size = 8"), same);
        assert_eq!(error("seq_len = 8\nseq_len_end = 8"), "a.toml:3:1: `seq_len_end` and `seq_len` mean the same");
        assert!(error("corpus_path = \"a\"\nsources = [\"b\"]").contains("`sources` and `corpus_path` mean the same"));
    }

    /// Every key of the trainer's own files, at 6e54453 and where rows grow, with a value as they have it.
    #[test]
    fn every_key_of_the_trainers_files_comes_to_what_is_said_of_it() {
        let text = "sources = [\"a.txt\", \"b.txt\"]\nmodel_name = \"rj\"\nepochs = 100\nseq_len_start = 2\nseq_len_end = 64\n\
            early_stop_patience = 20\nmodel_embd = 8\nmodel_head = 2\ndevice = \"cpu\"\nresume = \"trained/rj\"\nmax_length = 300\n\
            temperature = 0.8\nbeam_size = 3\nmodel_seed = \"\"\"\nIn Verona,\n\"\"\"\nmax_context_length = 512\ntokenizer = \"char\"\n\
            num_workers = 2\npin_memory = true\nlog_gpu_memory = true\n";
        let resolved = JobSource::from_file("a.toml", text).resolve(&[]).unwrap();
        let training = resolved.training;
        assert_eq!((training.early_stopping_patience, training.use_cpu), (Some(20), true));
        assert_eq!(training.resume_from_checkpoint.as_deref(), Some("trained/rj"));
        assert_eq!(training.output_dir.as_deref(), Some("trained/rj"));
        assert_eq!(training.data.tokenizer.as_deref(), Some("characters"));
        assert_eq!(training.data.train_files, ["a.txt", "b.txt"]);
        assert_eq!((training.generation.prompt.as_str(), training.generation.num_beams), ("In Verona,\n", 3));
        assert_eq!(
            (resolved.job.seq_len, resolved.job.row_growth),
            (64, Some(RowGrowth { first: 2, last: 64, epochs: 100 }))
        );
        let read = |line: &str| job_file::read_job_file("a.toml", &format!("model_embd = 8\n{line}"));
        assert!(read("resume = \"\"").unwrap().get("resume_from_checkpoint").is_none());
        let number = read("model_seed = 1").unwrap_err();
        assert!(number.to_string().contains("must be a text") && number.hint.unwrap().contains("`seed`"));
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
            let error = job_file::read_job_file("a.toml", text).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint.as_deref().unwrap_or("")), (problem, hint));
        }
    }
}
