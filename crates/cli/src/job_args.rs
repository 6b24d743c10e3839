//! The flags that describe a job: one for every key of the table in `spec`, so that a new key is a flag at once.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tonnage_core::spec::{KEYS, Key, KeyDefault, Kind, Override};

use crate::failure::Failure;

/// Sizes of a small GPT without a config file: flag, field of the config, key of a small-GPT file, meaning.
const GPT_FLAGS: [(&str, &str, &str, &str); 4] = [
    ("model-layer", "model.n_layer", "model_layer", "layers of a small GPT"),
    ("model-head", "model.n_head", "model_head", "attention heads of a small GPT"),
    ("model-embd", "model.n_embd", "model_embd", "hidden size of a small GPT"),
    ("model-positions", "model.n_positions", "model_positions", "positions of a small GPT"),
];

/// The small-GPT guide's own words for the batch and for fp16 autocast.
const BATCH_SIZE: &str = "batch-size";
const MIXED_PRECISION: &str = "mixed-precision";

/// A job as given on the command line.
#[derive(Clone, Debug)]
pub struct JobArgs {
    /// A model's name or path, or a job file.
    pub model: Option<String>,
    /// What flags and assignments say, the last one winning.
    pub overrides: Vec<Override>,
    /// Sizes of a small GPT, as the text of a small-GPT file.
    pub small_gpt: Option<String>,
}

impl Args for JobArgs {
    fn augment_args(command: Command) -> Command {
        let model = Arg::new("MODEL")
            .help("A model's name (see `tonnage models`), a config.json or its folder, or a job file (.toml)")
            .help_heading(None::<&str>);
        let set = Arg::new("set")
            .long("set")
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help("Sets any key of a job, or `model.` and a field of the model's config")
            .help_heading("Job");
        let gpt = GPT_FLAGS.iter().map(|(flag, _, _, doc)| {
            let parser = clap::value_parser!(u64).range(1..);
            Arg::new(*flag)
                .long(*flag)
                .value_name("N")
                .value_parser(parser)
                .help(sentence(doc))
                .help_heading("Small GPT")
        });
        let gpu_file = Arg::new("gpu-file")
            .long("gpu-file")
            .value_name("FILE")
            .conflicts_with("gpu")
            .help("A GPU of your own, written out in TOML or JSON: memory, kind, rates, watts, or what it is `like`")
            .help_heading("Job");
        let batch_size = Arg::new(BATCH_SIZE)
            .long(BATCH_SIZE)
            .value_name("N")
            .value_parser(clap::value_parser!(u64).range(1..))
            .conflicts_with("micro_batch_size")
            .help("Rows of a batch of a small GPT")
            .help_heading("Small GPT");
        let mixed_precision = Arg::new(MIXED_PRECISION)
            .long(MIXED_PRECISION)
            .action(ArgAction::SetTrue)
            .conflicts_with("precision")
            .help("A small GPT under fp16 autocast")
            .help_heading("Small GPT");
        command.arg(model).args(flags().map(flag)).arg(gpu_file).arg(set).args(gpt).arg(batch_size).arg(mixed_precision)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for JobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let model = matches.get_one::<String>("MODEL").cloned();
        let mut overrides: Vec<_> =
            flags().filter_map(|key| Some(Override::flag(key.name, matches.get_one::<String>(key.name)?))).collect();
        let small_gpt = small_gpt(matches, model.as_deref(), &mut overrides)?;
        if let Some(path) = matches.get_one::<String>("gpu-file") {
            let suffix = if path.ends_with(".toml") || path.ends_with(".json") { "" } else { ".toml" };
            overrides.push(Override {
                key: "gpu".to_owned(),
                value: format!("{path}{suffix}"),
                flag: "--gpu-file".to_owned(),
            });
        }
        for text in matches.get_many::<String>("set").into_iter().flatten() {
            let assignment = Override::assignment(text);
            overrides.push(assignment.map_err(|error| usage(&error.into()))?);
        }
        check(&overrides)?;
        Ok(Self { model, overrides, small_gpt })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What the flags of a small GPT say: where no model is named, the text of a small-GPT file; else changes to the model.
fn small_gpt(
    matches: &ArgMatches,
    model: Option<&str>,
    overrides: &mut Vec<Override>,
) -> Result<Option<String>, clap::Error> {
    let sizes: Vec<_> = GPT_FLAGS.iter().filter_map(|row| Some((row, *matches.get_one::<u64>(row.0)?))).collect();
    let batch_size = matches.get_one::<u64>(BATCH_SIZE);
    let mixed_precision = matches.get_flag(MIXED_PRECISION);
    let Some(model) = model else {
        let mut text: String = sizes.iter().map(|((_, _, key, _), size)| format!("{key} = {size}\n")).collect();
        text.extend(batch_size.map(|rows| format!("batch_size = {rows}\n")));
        text.push_str(if mixed_precision { "use_amp = true\n" } else { "" });
        return Ok(Some(text).filter(|_| !sizes.is_empty()));
    };
    let mut set = |key: &str, value: String, flag: &str| {
        overrides.push(Override { key: key.to_owned(), value, flag: format!("--{flag}") });
    };
    sizes.iter().for_each(|((flag, field, ..), size)| set(field, size.to_string(), flag));
    if let Some(rows) = batch_size {
        set("micro_batch_size", rows.to_string(), BATCH_SIZE);
    }
    if mixed_precision {
        set("precision", "amp-fp16".to_owned(), MIXED_PRECISION);
    }
    let is_file = model.to_lowercase().ends_with(".toml");
    match batch_size.map(|_| BATCH_SIZE).or(mixed_precision.then_some(MIXED_PRECISION)) {
        Some(flag) if !is_file => Err(usage(&of_a_small_gpt(flag))),
        _ => Ok(None),
    }
}

/// Elsewhere these words leave open which batch, and which half precision, is meant.
fn of_a_small_gpt(flag: &str) -> Failure {
    let hint = if flag == BATCH_SIZE {
        "say `--micro-batch-size` for the rows of a pass, `--global-batch-size` for those of a step"
    } else {
        "say `--precision amp-bf16` or `--precision amp-fp16`"
    };
    Failure::input(format!(
        "`--{flag}` is for a small GPT, given by its training file or by `--model-embd` and its like"
    ))
    .hint(hint)
}

fn usage(failure: &Failure) -> clap::Error {
    let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
    clap::Error::raw(ErrorKind::ValueValidation, format!("{}{hint}\n", failure.problem))
}

/// Refuses a key that is set twice: the last would win without a word.
fn check(overrides: &[Override]) -> Result<(), clap::Error> {
    for (at, given) in overrides.iter().enumerate() {
        let called =
            |given: &Override| Key::called(&given.key).map_or_else(|| given.key.clone(), |key| key.name.to_owned());
        if let Some(first) = overrides[..at].iter().find(|first| called(first) == called(given)) {
            let failure =
                Failure::input(format!("`{}` is set twice: {} and {}", called(given), first.flag, given.flag));
            return Err(usage(&failure.hint("leave out one of them")));
        }
    }
    Ok(())
}

/// The keys that have a flag; the model is the positional argument.
fn flags() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| key.name != "model")
}

fn flag(key: &'static Key) -> Arg {
    let mut arg = Arg::new(key.name)
        .long(key.flag().trim_start_matches('-').to_owned())
        .value_name(key.kind.value_name())
        .help(help(key))
        .help_heading(heading(key.name))
        .allow_negative_numbers(true)
        .hide_short_help(is_rare(key.name));
    arg = match key.name {
        "micro_batch_size" => arg.short('b'),
        "seq_len" => arg.short('s'),
        "gpu" => arg.short('g'),
        _ => arg,
    };
    match key.kind {
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Choice(words) => arg.value_parser(Words(words)),
        _ => arg,
    }
}

/// Whether only the long help shows it.
fn is_rare(name: &str) -> bool {
    (name.contains('.') && !name.starts_with("lora.")) || heading(name) == "Time and price"
}

/// Words with what they mean, for help and completion; which are taken, the table of keys says.
#[derive(Clone, Copy)]
struct Words(&'static [(&'static str, &'static str)]);

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let text = value.to_str().ok_or_else(|| clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(command))?;
        Ok(text.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|(word, doc)| PossibleValue::new(*word).help(*doc))))
    }
}

fn help(key: &Key) -> String {
    match key.default {
        KeyDefault::Unset => sentence(key.doc),
        _ => format!("{} [default: {}]", sentence(key.doc), key.default_text()),
    }
}

fn heading(name: &str) -> &'static str {
    match name {
        "prompt_len" | "completion_len" | "num_generations" | "trl" => return "Reinforcement learning",
        "world_size" | "parallel" | "global_batch_size" => return "Several GPUs",
        "max_steps" | "num_train_epochs" | "train_rows" | "train_tokens" | "step_time" | "price" | "allow_tf32" => {
            return "Time and price";
        }
        _ => {}
    }
    match name.split('.').next() {
        Some("lora") => "LoRA",
        Some("allocator") => "Allocator",
        Some("grpo" | "vllm" | "dpo") => "Reinforcement learning",
        Some("judge") => "Judge",
        Some("swarm") => "Swarm",
        Some("ddp" | "zero1" | "fsdp2" | "deepspeed" | "pipeline") => "Several GPUs",
        _ => "Job",
    }
}

/// The text with a capital, unless it begins with code (`use_cache`).
fn sentence(doc: &str) -> String {
    let first_word = doc.split([' ', ':']).next().unwrap_or_default();
    if first_word.contains(['_', '(', '.']) {
        return doc.to_owned();
    }
    let mut characters = doc.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}
