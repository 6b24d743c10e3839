//! The flags that describe a job: one for every key of the table in `spec`, so that a new key is a flag at once.

use clap::builder::{PossibleValue, PossibleValuesParser};
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
        command.arg(model).args(flags().map(flag)).arg(gpu_file).arg(set).args(gpt)
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
        let sizes = || GPT_FLAGS.iter().filter_map(|row| Some((row, matches.get_one::<u64>(row.0)?)));
        let mut small_gpt = None;
        if model.is_some() {
            overrides.extend(sizes().map(|((flag, field, ..), size)| Override {
                key: (*field).to_owned(),
                value: size.to_string(),
                flag: format!("--{flag}"),
            }));
        } else if sizes().next().is_some() {
            small_gpt = Some(sizes().map(|((_, _, key, _), size)| format!("{key} = {size}\n")).collect());
        }
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
        Ok(Self { model, overrides, small_gpt })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn usage(failure: &Failure) -> clap::Error {
    let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{}{hint}\n", failure.problem))
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
        Kind::Choice(words) => arg.value_parser(words_parser(words)).ignore_case(true),
        _ => arg,
    }
}

/// Whether only the long help shows it.
fn is_rare(name: &str) -> bool {
    (name.contains('.') && !name.starts_with("lora.")) || heading(name) == "Time and price"
}

/// Words with what they mean, for help and completion; `-` and `_` are the same.
fn words_parser(words: &'static [(&'static str, &'static str)]) -> PossibleValuesParser {
    let value = |(word, doc): &(&'static str, &'static str)| {
        let other = if word.contains('-') { word.replace('-', "_") } else { word.replace('_', "-") };
        let value = PossibleValue::new(*word).help(*doc);
        if other == *word { value } else { value.alias(other) }
    };
    PossibleValuesParser::new(words.iter().map(value).collect::<Vec<_>>())
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
        "max_steps" | "num_train_epochs" | "train_rows" | "train_tokens" | "step_time" | "price" | "allow_tf32"
        | "framework" => return "Time and price",
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
