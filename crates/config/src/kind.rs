//! [`Kind`]: the programs whose configs are read, one line each.

use tonnage_core::job::{JobError, JobErrorKind};
use tonnage_core::small_sort::SmallSort;

use crate::facts::Facts;
use crate::kinds::{
    accelerate, axolotl, deepspeed, grpo, launch, llama_factory, openrlhf, peft, preference, python, torchtitan,
    trainer, trl, verl, verl_workers,
};
use crate::rule::{Became, KeyRead, Rule, Table, walk_entries};
use crate::text::{command, json, toml, yaml};
use crate::tree::{Entry, Node, find_entry, same_key};

/// A program whose configs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TRL, the trainer by its keys.
    Trl,
    /// TRL's `SFTTrainer`.
    TrlSft,
    /// TRL's `DPOTrainer`.
    TrlDpo,
    /// TRL's `GRPOTrainer`.
    TrlGrpo,
    /// TRL's `RLOOTrainer`.
    TrlRloo,
    /// TRL's `KTOTrainer`.
    TrlKto,
    /// TRL's `ORPOTrainer`.
    TrlOrpo,
    /// TRL's `CPOTrainer`.
    TrlCpo,
    /// transformers' `TrainingArguments`.
    Trainer,
    /// A file of `accelerate config`.
    Accelerate,
    /// A JSON file of `--deepspeed`.
    DeepSpeed,
    /// peft's `adapter_config.json`.
    Peft,
    /// A YAML file of `axolotl train`.
    Axolotl,
    /// A YAML or JSON file of `llamafactory-cli train`.
    LlamaFactory,
    /// A TOML file of torchtitan's `--job.config_file`.
    Torchtitan,
    /// A YAML file or overrides of verl's trainers.
    Verl,
    /// A command of OpenRLHF's `train_*` modules.
    OpenRlhf,
    /// Keywords in a Python script or notebook, Unsloth's among them.
    Python,
}

/// A kind, its name, and what it is.
pub const KINDS: &[(Kind, &str, &str)] = &[
    (Kind::Trl, "trl", "TRL's YAML or command line; which trainer, its keys say"),
    (Kind::TrlSft, "trl-sft", "the same of SFTTrainer"),
    (Kind::TrlDpo, "trl-dpo", "the same of DPOTrainer"),
    (Kind::TrlGrpo, "trl-grpo", "the same of GRPOTrainer"),
    (Kind::TrlRloo, "trl-rloo", "the same of RLOOTrainer"),
    (Kind::TrlKto, "trl-kto", "the same of KTOTrainer"),
    (Kind::TrlOrpo, "trl-orpo", "the same of ORPOTrainer"),
    (Kind::TrlCpo, "trl-cpo", "the same of CPOTrainer, SimPO's loss among others"),
    (Kind::Trainer, "trainer", "transformers' TrainingArguments: JSON, YAML or a command line of run_clm.py's kind"),
    (Kind::Accelerate, "accelerate", "accelerate's config, as `accelerate config` writes it"),
    (Kind::DeepSpeed, "deepspeed", "DeepSpeed's JSON"),
    (Kind::Peft, "peft", "peft's adapter_config.json"),
    (Kind::Axolotl, "axolotl", "Axolotl's YAML"),
    (Kind::LlamaFactory, "llama-factory", "LLaMA-Factory's YAML or command line"),
    (Kind::Torchtitan, "torchtitan", "torchtitan's TOML"),
    (Kind::Verl, "verl", "verl's YAML or command line"),
    (Kind::OpenRlhf, "openrlhf", "OpenRLHF's command line"),
    (
        Kind::Python,
        "python",
        "a Python script or notebook: the keywords of SFTConfig, LoraConfig, FastLanguageModel, ...",
    ),
];

impl Kind {
    /// The kind called `name`.
    pub fn find_kind(name: &str) -> Option<Self> {
        let plain = |text: &str| text.to_lowercase().replace(['_', ' '], "-");
        let name = match plain(name).as_str() {
            "unsloth" | "notebook" => "python".to_owned(),
            "llamafactory" | "llama-factory" => "llama-factory".to_owned(),
            "transformers" | "hf" | "training-arguments" => "trainer".to_owned(),
            name => name.to_owned(),
        };
        KINDS.iter().find(|(_, theirs, _)| *theirs == name).map(|(kind, ..)| *kind)
    }

    /// As `--from` takes it.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| *name)
    }

    /// Its keys, the first table that has one deciding.
    pub fn tables(self) -> Vec<Table> {
        match self {
            Self::Trl | Self::TrlSft => vec![Table::of(trl::SFT), trl::SHARED, trainer::ARGUMENTS],
            Self::TrlDpo => vec![Table::of(trl::DPO), trl::SHARED, trainer::ARGUMENTS],
            Self::TrlGrpo => vec![grpo::GRPO, trl::SHARED, trainer::ARGUMENTS],
            Self::TrlRloo => vec![Table::of(preference::RLOO), grpo::GRPO, trl::SHARED, trainer::ARGUMENTS],
            Self::TrlKto => vec![Table::of(preference::KTO), trl::SHARED, trainer::ARGUMENTS],
            Self::TrlOrpo => vec![Table::of(preference::ORPO), trl::SHARED, trainer::ARGUMENTS],
            Self::TrlCpo => vec![Table::of(preference::CPO), trl::SHARED, trainer::ARGUMENTS],
            Self::Trainer => vec![trainer::ARGUMENTS, Table::of(trainer::SCRIPT)],
            Self::Accelerate => vec![Table::of(accelerate::ROWS)],
            Self::DeepSpeed => vec![Table::of(deepspeed::ROWS)],
            Self::Peft => vec![Table::of(peft::LORA)],
            Self::Axolotl => vec![axolotl::ROWS],
            Self::LlamaFactory => vec![llama_factory::ROWS, trainer::ARGUMENTS],
            Self::Torchtitan => vec![Table::of(torchtitan::ROWS)],
            Self::Verl => vec![Table::of(verl_workers::ROWS), Table::of(verl::ROWS)],
            Self::OpenRlhf => vec![openrlhf::ROWS],
            Self::Python => vec![],
        }
    }

    /// The kind that has a key of this name, and its rule: what somebody types whose trainer is another program.
    pub fn with_key(key: &str) -> Option<(Self, Rule)> {
        const ASKED: [Kind; 6] =
            [Kind::TrlSft, Kind::TrlGrpo, Kind::TrlDpo, Kind::LlamaFactory, Kind::Axolotl, Kind::DeepSpeed];
        ASKED.iter().find_map(|kind| Some((*kind, kind.tables().iter().find_map(|table| table.rule(key))?)))
    }

    /// The trainer of TRL whose config it is.
    const fn trainer_of_trl(self) -> Option<trl::Trainer> {
        Some(match self {
            Self::Trl | Self::TrlSft => trl::Trainer::Sft,
            Self::TrlDpo => trl::Trainer::Dpo,
            Self::TrlGrpo => trl::Trainer::Grpo,
            Self::TrlRloo => trl::Trainer::Rloo,
            Self::TrlKto => trl::Trainer::Kto,
            Self::TrlOrpo => trl::Trainer::Orpo,
            Self::TrlCpo => trl::Trainer::Cpo,
            _ => return None,
        })
    }

    /// In which order kinds are read: what others refer to comes first.
    const fn turn(self) -> u8 {
        match self {
            Self::Accelerate => 0,
            Self::DeepSpeed => 1,
            Self::Peft => 3,
            _ => 2,
        }
    }
}

/// A text with its name.
#[derive(Clone, Copy, Debug)]
pub struct ConfigText<'a> {
    /// What errors call it, usually a path.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

/// A text as entries.
pub(crate) struct Parsed {
    pub kind: Kind,
    pub name: String,
    pub entries: Vec<Entry>,
    /// The launcher's options, of a command line.
    pub launcher: Vec<Entry>,
    /// Keys that are given again further on, which then hold.
    pub replaced: Vec<Entry>,
    /// The calls of a Python text.
    pub calls: Vec<crate::text::python::Call>,
}

/// The format of a text by its name.
fn is_command(name: &str) -> bool {
    let name = name.to_lowercase();
    [".sh", ".bash", ".slurm", ".sbatch", ".cmd", ".txt", "-"].iter().any(|end| name.ends_with(end))
}

fn is_python(name: &str) -> bool {
    let name = name.to_lowercase();
    name.ends_with(".py") || name.ends_with(".ipynb")
}

/// Reads a text as `kind`, or as what it looks like.
pub(crate) fn parse(kind: Option<Kind>, text: ConfigText<'_>) -> Result<Parsed, JobError> {
    let ConfigText { name, text } = text;
    let parsed = |kind, entries| Parsed {
        kind,
        name: name.to_owned(),
        entries,
        launcher: Vec::new(),
        replaced: Vec::new(),
        calls: Vec::new(),
    };
    if kind == Some(Kind::Python) || kind.is_none() && is_python(name) {
        let calls = crate::text::python::read_python(name, text, python::is_wanted)?;
        if calls.is_empty() {
            let problem = format!("{name}: no call of a trainer's config is in it");
            let hint = "looked for are SFTConfig, TrainingArguments, LoraConfig, FastLanguageModel.from_pretrained and their like";
            return Err(JobError::of_kind(JobErrorKind::Unreadable, problem).hint(hint));
        }
        return Ok(Parsed { calls, ..parsed(Kind::Python, Vec::new()) });
    }
    if is_command(name) {
        let command = command::read_command(name, text)?;
        let kind = kind.or_else(|| kind_of_program(&command.program, &command.arguments));
        let kind =
            kind.ok_or_else(|| not_guessed(name, &format!("`{}` is no program that is known", command.program)))?;
        let entries = [command.arguments, command.words].concat();
        return Ok(Parsed { launcher: command.launched_with, replaced: command.replaced, ..parsed(kind, entries) });
    }
    let entries = if name.to_lowercase().ends_with(".toml") {
        toml::read_toml(name, text)?
    } else if name.to_lowercase().ends_with(".json") {
        json::read_json(name, text)?
    } else {
        yaml::read_yaml(name, text)?
    };
    match kind.or_else(|| guess_kind(&entries)) {
        Some(kind) => Ok(parsed(kind, entries)),
        None => Err(not_guessed(name, "its keys are those of no trainer, or of several")),
    }
}

fn not_guessed(name: &str, why: &str) -> JobError {
    let kinds: Vec<&str> = KINDS.iter().map(|(_, name, _)| *name).collect();
    JobError::of_kind(JobErrorKind::Unreadable, format!("{name}: whose config this is cannot be told: {why}"))
        .hint(format!("say it before the file: --from KIND FILE, one of {}", kinds.join(", ")))
}

/// The kind of a program's arguments.
fn kind_of_program(program: &str, arguments: &[Entry]) -> Option<Kind> {
    match program {
        "trl sft" => return Some(Kind::TrlSft),
        "trl dpo" => return Some(Kind::TrlDpo),
        "trl grpo" => return Some(Kind::TrlGrpo),
        "trl rloo" => return Some(Kind::TrlRloo),
        "trl kto" => return Some(Kind::TrlKto),
        _ if program.starts_with("trl ") => return Some(Kind::Trl),
        _ if program.starts_with("llamafactory-cli") => return Some(Kind::LlamaFactory),
        _ if program.starts_with("axolotl") => return Some(Kind::Axolotl),
        _ if program.starts_with("verl.") || program.contains("verl/trainer") => return Some(Kind::Verl),
        _ if program.starts_with("openrlhf.") => return Some(Kind::OpenRlhf),
        _ => {}
    }
    let file = program.rsplit('/').next().unwrap_or_default();
    match file {
        _ if find_entry(arguments, "finetuning_type").is_some() => Some(Kind::LlamaFactory),
        "sft.py" => Some(Kind::TrlSft),
        "dpo.py" => Some(Kind::TrlDpo),
        "grpo.py" => Some(Kind::TrlGrpo),
        "rloo.py" => Some(Kind::TrlRloo),
        "kto.py" => Some(Kind::TrlKto),
        "orpo.py" => Some(Kind::TrlOrpo),
        "cpo.py" => Some(Kind::TrlCpo),
        _ => guess_kind(arguments),
    }
}

/// Keys that one program has and no other.
const SIGNS: &[(Kind, &[&str])] = &[
    (Kind::Accelerate, &["compute_environment", "distributed_type"]),
    (Kind::DeepSpeed, &["zero_optimization", "train_micro_batch_size_per_gpu"]),
    (Kind::Axolotl, &["base_model"]),
    (Kind::Verl, &["actor_rollout_ref", "model.partial_pretrain", "data.micro_batch_size_per_gpu"]),
    (Kind::LlamaFactory, &["finetuning_type", "cutoff_len"]),
    (Kind::Peft, &["peft_type"]),
    (Kind::OpenRlhf, &["zero_stage", "micro_train_batch_size"]),
];

/// The kind by keys.
pub(crate) fn guess_kind(entries: &[Entry]) -> Option<Kind> {
    let has = |key: &str| has_key(entries, key);
    if let Some((kind, _)) = SIGNS.iter().find(|(_, keys)| keys.iter().any(|key| has(key))) {
        return Some(*kind);
    }
    if has("training") && (has("model") || has("optimizer") || has("parallelism")) {
        return Some(Kind::Torchtitan);
    }
    let of_trl = [
        "dataset_name",
        "dataset_mixture",
        "use_peft",
        "lora_target_modules",
        "packing",
        "num_generations",
        "max_length",
        "max_prompt_length",
        "max_seq_length",
        "beta",
    ];
    let of_trainer = ["per_device_train_batch_size", "output_dir", "learning_rate", "gradient_accumulation_steps"];
    match () {
        () if !of_trainer.iter().any(|key| has(key)) => None,
        () if has("block_size") || has("train_file") || has("dataset_config_name") => Some(Kind::Trainer),
        () if of_trl.iter().any(|key| has(key)) => Some(Kind::Trl),
        () => Some(Kind::Trainer),
    }
}

/// Whether a key is there, or a table of that name; dots lead into tables, however these are written.
fn has_key(entries: &[Entry], path: &str) -> bool {
    let is_there = |entry: &Entry| same_key(&entry.key, path) || entry.key.starts_with(&format!("{path}."));
    let below = path.split_once('.').and_then(|(table, rest)| Some((find_entry(entries, table)?, rest)));
    entries.iter().any(is_there)
        || below.is_some_and(|(table, rest)| matches!(&table.node, Node::Table(below) if has_key(below, rest)))
}

/// Tables written out with dots.
fn flatten_entries(entries: &[Entry], path: &str) -> Vec<Entry> {
    let below = |entry: &Entry| {
        let key = format!("{path}{}", entry.key);
        match &entry.node {
            Node::Table(below) if !below.is_empty() => flatten_entries(below, &format!("{key}.")),
            _ => vec![Entry { key, ..entry.clone() }],
        }
    };
    entries.iter().flat_map(below).collect()
}

/// Reads what was parsed, those that others refer to first; keys in the order of the files.
pub(crate) fn read_all(facts: &mut Facts, parsed: &[Parsed]) -> Vec<(Kind, String, Vec<KeyRead>)> {
    let mut order: Vec<usize> = (0..parsed.len()).collect();
    order.small_sort_by_key(|at| parsed.get(*at).map(|file| file.kind.turn()));
    let mut read: Vec<(usize, Kind, String, Vec<KeyRead>)> = Vec::new();
    for at in order {
        let Some(file) = parsed.get(at) else { continue };
        let mut keys = Vec::new();
        walk_entries(facts, &file.launcher, &[Table::of(launch::ROWS)], &mut keys);
        keys.extend(file.replaced.iter().map(replaced_key));
        let kind = read_one(facts, file, &mut keys);
        read.push((at, kind, file.name.clone(), keys));
    }
    read.small_sort_by_key(|(at, ..)| *at);
    read.into_iter().map(|(_, kind, name, keys)| (kind, name, keys)).collect()
}

/// A key of Hydra's that is given again further on.
fn replaced_key(entry: &Entry) -> KeyRead {
    let became = Became::NoMemory("the same key is given again further on, and Hydra takes the last");
    KeyRead { key: entry.key.clone(), value: entry.node.value(), place: entry.place.clone(), became }
}

/// The kind of a trainer's config.
fn kind_of_trainer(trainer: trl::Trainer) -> Kind {
    let kinds = KINDS.iter().map(|(kind, ..)| *kind).filter(|kind| *kind != Kind::Trl);
    kinds.into_iter().find(|kind| kind.trainer_of_trl() == Some(trainer)).unwrap_or(Kind::TrlSft)
}

fn read_one(facts: &mut Facts, file: &Parsed, keys: &mut Vec<KeyRead>) -> Kind {
    let kind = if file.kind == Kind::Trl { kind_of_trainer(trl::guess_trainer(&file.entries)) } else { file.kind };
    if kind == Kind::Python {
        python::read_calls(facts, &file.calls, keys);
        return kind;
    }
    let flat = if kind == Kind::Verl { flatten_entries(&file.entries, "") } else { Vec::new() };
    walk_entries(facts, if kind == Kind::Verl { &flat } else { &file.entries }, &kind.tables(), keys);
    match kind {
        _ if kind.trainer_of_trl().is_some() => {
            trl::finish_trl(facts, kind.trainer_of_trl().unwrap_or(trl::Trainer::Sft), true);
        }
        Kind::Axolotl => axolotl::finish_axolotl(facts, &file.entries),
        Kind::LlamaFactory => llama_factory::finish_factory(facts, &file.entries),
        Kind::Torchtitan => torchtitan::finish_titan(facts, &file.entries),
        Kind::Verl if verl_workers::has_workers(&flat) => verl_workers::finish_workers(facts, &flat),
        Kind::Verl => verl::finish_verl(facts),
        Kind::OpenRlhf => openrlhf::finish_openrlhf(facts),
        Kind::Trainer => facts.imply_key(tonnage_core::job::keys::FRAMEWORK, "trainer", "the config is transformers'"),
        _ => {}
    }
    if kind.trainer_of_trl().is_some() || matches!(kind, Kind::Trainer | Kind::LlamaFactory) {
        trainer::finish_trainer(facts, &file.entries);
    }
    kind
}
