//! The flags that describe a job: one for every key of the table in `spec`, so that a new key is a flag at once.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tonnage_config::Kind as ConfigKind;
use tonnage_core::job::{KEYS, Key, KeyDefault, Kind, Origin, Override, keys};

use crate::config_input;
use crate::failure::Failure;
use crate::small_gpt;

/// The end of a short help.
pub const SHORT: &str = "All flags, examples and exit codes: --help. Every key of a job: `tonnage keys`.";

/// A job as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct JobArgs {
    /// A model's name or path, or a job file.
    pub model: Option<String>,
    /// What flags and assignments say, the last one winning.
    pub overrides: Vec<Override>,
    /// Sizes of a small GPT, as the text of a small-GPT file.
    pub small_gpt: Option<String>,
    /// What the program that asks in its own process has at hand.
    pub handed: Handed,
    /// Configs of trainers, each as a kind or as what it looks like.
    pub from: Vec<(Option<ConfigKind>, String)>,
}

/// What another program hands over in memory.
#[derive(Clone, Debug, Default)]
pub struct Handed {
    /// Configs, by the name that the job gives.
    pub configs: Vec<(String, String)>,
    /// Objects of Python: the names of the type and of those it is made of, and the attributes as JSON.
    pub objects: Vec<(String, String)>,
    /// What answers must say of how the job was gathered.
    pub notes: Vec<String>,
    /// The folder of the environment of Python that asks.
    pub environment: Option<PathBuf>,
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
            .help("Sets any key, or model.FIELD")
            .long_help("Sets any key of a job, or `model.` and a field of the model's config")
            .display_order(BRIEF.len())
            .help_heading("Job");
        let gpu_file = Arg::new("gpu-file")
            .long("gpu-file")
            .value_name("FILE")
            .conflicts_with(keys::GPU)
            .help("A GPU of your own, written out in TOML or JSON: memory, kind, rates, watts, or what it is `like`")
            .hide_short_help(true)
            .help_heading("Job");
        command
            .arg(model)
            .args(key_flags().map(flag_of))
            .arg(gpu_file)
            .arg(set)
            .arg(config_input::config_flag())
            .args(small_gpt::small_gpt_flags())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for JobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (from, named) = config_input::typed_configs(matches)?;
        let model = matches.get_one::<String>("MODEL").cloned().or(named);
        let mut overrides: Vec<_> = key_flags()
            .filter_map(|key| Some(Override::flag(key.name, matches.get_one::<String>(key.name)?)))
            .collect();
        let small_gpt = small_gpt::read_guide(matches, model.as_deref(), &mut overrides)?;
        if let Some(path) = matches.get_one::<String>("gpu-file") {
            let suffix = if path.ends_with(".toml") || path.ends_with(".json") { "" } else { ".toml" };
            let origin = Origin::Flag("--gpu-file".to_owned());
            overrides.push(Override::new(keys::GPU, format!("{path}{suffix}"), origin));
        }
        for text in matches.get_many::<String>("set").into_iter().flatten() {
            let assignment = Override::assignment(text);
            overrides.push(assignment.map_err(|error| Failure::from(error).into_clap_of(ErrorKind::NoEquals))?);
        }
        check_overrides(&overrides)?;
        Ok(Self { model, overrides, small_gpt, from, handed: Handed::default() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Refuses a key that is set twice: the last would win without a word.
fn check_overrides(overrides: &[Override]) -> Result<(), clap::Error> {
    for (at, given) in overrides.iter().enumerate() {
        let called =
            |given: &Override| Key::called(&given.key).map_or_else(|| given.key.clone(), |key| key.name.to_owned());
        if let Some(first) = overrides[..at].iter().find(|first| called(first) == called(given)) {
            let (first, again) = (first.origin.said(), given.origin.said());
            let failure = Failure::bad_input(format!("`{}` is set twice: {first} and {again}", called(given)));
            return Err(failure.with_hint("leave out one of them").into_clap());
        }
    }
    Ok(())
}

/// The keys that have a flag; the model is the positional argument.
fn key_flags() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| key.name != keys::MODEL)
}

fn flag_of(key: &'static Key) -> Arg {
    let brief = brief_help(key.name);
    let mut arg = Arg::new(key.name)
        .long(key.flag().trim_start_matches('-').to_owned())
        .value_name(key.kind.value_name())
        .help(brief.map_or_else(|| help_of(key), |(_, text)| text.to_owned()))
        .long_help(with_words(key, brief.map(|(_, text)| text)))
        .display_order(brief.map_or(BRIEF.len(), |(at, _)| at))
        .hide_possible_values(brief.is_some())
        .help_heading(heading_of(key.name))
        .allow_negative_numbers(true)
        .hide_short_help(brief.is_none());
    arg = match key.name {
        keys::MICRO_BATCH_SIZE => arg.short('b'),
        keys::SEQ_LEN => arg.short('s'),
        keys::GPU => arg.short('g'),
        _ => arg,
    };
    match key.kind {
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Choice(words) => arg.value_parser(Words(words)),
        _ => arg,
    }
}

/// What the short help says of the keys that most jobs have, and at which place; of the others it says nothing.
fn brief_help(name: &str) -> Option<(usize, &'static str)> {
    BRIEF.iter().enumerate().find(|(_, (key, _))| *key == name).map(|(at, (_, text))| (at, *text))
}

/// In the order of the short help.
const BRIEF: [(&str, &str); 10] = [
    (keys::MICRO_BATCH_SIZE, "Rows of a pass on this GPU"),
    (keys::SEQ_LEN, "Tokens of a row"),
    (keys::PRECISION, "fp32, bf16, amp-bf16, bf16-amp, ..."),
    (keys::GPU, "l4, a100-80, 24GiB, live, ..."),
    (keys::GRADIENT_CHECKPOINTING, "Recomputes activations in backward"),
    (keys::GRADIENT_ACCUMULATION_STEPS, "Passes of an optimizer step"),
    (keys::TASK, "causal_lm, generate, grpo, dpo, ..."),
    (keys::LORA_R, "Trains LoRA adapters of this rank"),
    (keys::WORLD_SIZE, "Ranks, a GPU each"),
    (keys::PARALLEL, "ddp, fsdp2, deepspeed, tensor, ..."),
];

/// The long help of a key of which the short help names but some words.
fn with_words(key: &Key, brief: Option<&str>) -> String {
    let Kind::Choice(words) = key.kind else { return help_of(key) };
    if brief.is_none() {
        return help_of(key);
    }
    let lines: String = words.iter().map(|(word, doc)| format!("\n- {word}: {doc}")).collect();
    format!("{}\n\nPossible values:{lines}", help_of(key))
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

fn help_of(key: &Key) -> String {
    match key.default {
        KeyDefault::Unset => first_sentence(key.doc),
        _ => format!("{} [default: {}]", first_sentence(key.doc), key.default_text()),
    }
}

fn heading_of(name: &str) -> &'static str {
    match name {
        keys::PROMPT_LEN | keys::COMPLETION_LEN | keys::NUM_GENERATIONS | keys::TRL => return "Reinforcement learning",
        keys::WORLD_SIZE | keys::PARALLEL | keys::GLOBAL_BATCH_SIZE => return "Several GPUs",
        keys::MAX_STEPS
        | keys::NUM_TRAIN_EPOCHS
        | keys::TRAIN_ROWS
        | keys::TRAIN_TOKENS
        | keys::STEP_TIME
        | keys::PRICE
        | keys::ALLOW_TF32 => {
            return "Time and price";
        }
        keys::LEARNING_RATE
        | keys::LR_SCHEDULER_TYPE
        | keys::WARMUP_STEPS
        | keys::WEIGHT_DECAY
        | keys::ADAM_BETA1
        | keys::ADAM_BETA2
        | keys::ADAM_EPSILON
        | keys::SEED
        | keys::INIT
        | keys::OUTPUT_DIR
        | keys::LOGGING_STEPS
        | keys::EVAL_STEPS
        | keys::EARLY_STOPPING_PATIENCE
        | keys::RESUME_FROM_CHECKPOINT
        | keys::USE_CPU
        | keys::SAVE_STEPS
        | keys::SAVE_TOTAL_LIMIT => return "Training",
        _ => {}
    }
    match name.split('.').next() {
        Some("lora") => "LoRA",
        Some(keys::ALLOCATOR) => "Allocator",
        Some("grpo" | "vllm" | "dpo" | "kto" | "cpo" | "gkd" | "ppo" | "reward") => "Reinforcement learning",
        Some("embedding") => "Embeddings",
        Some("judge") => "Judge",
        Some("data") => "Data",
        Some("generation") => "Generation",
        Some("swarm") => "Swarm",
        Some("ddp" | "zero1" | "fsdp2" | "deepspeed" | "pipeline") => "Several GPUs",
        _ => "Job",
    }
}

/// The text with a capital, unless it begins with code (`use_cache`).
fn first_sentence(doc: &str) -> String {
    let first_word = doc.split([' ', ':']).next().unwrap_or_default();
    if first_word.contains(['_', '(', '.']) {
        return doc.to_owned();
    }
    let mut characters = doc.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}
