//! Objects of Python by their attributes or keywords: the trainers' configs, peft's, bitsandbytes', and Unsloth's functions.

use serde_json::Value;
use tonnage_core::job::{Allowance, LeftOpen, keys};

use super::trainer::{attention, checkpointing, dtype};
use super::words::{CODE, DATA, EVAL, HUB, NAME, SEED, TOKENS};
use super::{grpo, peft, preference, quantized, trainer, trl};
use crate::facts::{Facts, Live, Weights};
use crate::rule::Rule::{Free, Notes, Reads, Refuses, Sets};
use crate::rule::{Became, KeyRead, OFF, Row, Said, Table, walk_entries};
use crate::text::python::Call;
use crate::tree::{Entry, find_entry, is_null, is_on};

/// A class or function, and its keys.
pub struct Class {
    /// Its name, with the class of a method.
    pub name: &'static str,
    /// Its keys, the first table that has one deciding.
    pub tables: &'static [Table],
    /// What its own defaults are.
    pub finish: fn(&mut Facts, &[Entry]),
}

/// What a live model is called.
pub const MODEL_CLASS: &str = "model";

const NOTHING: fn(&mut Facts, &[Entry]) = |_, _| {};

/// The classes and functions whose attributes and keywords are read.
pub const CLASSES: &[Class] = &[
    Class { name: "TrainingArguments", tables: &[FIRST, trainer::ARGUMENTS], finish: of_trainer },
    Class { name: "Seq2SeqTrainingArguments", tables: &[FIRST, trainer::ARGUMENTS], finish: of_trainer },
    Class {
        name: "UnslothTrainingArguments",
        tables: &[FIRST, trainer::ARGUMENTS, Table::of(UNSLOTH_ARGUMENTS)],
        finish: of_trainer,
    },
    Class {
        name: "SFTConfig",
        tables: &[FIRST, Table::of(trl::SFT), trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Sft),
    },
    Class {
        name: "DPOConfig",
        tables: &[FIRST, Table::of(trl::DPO), trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Dpo),
    },
    Class {
        name: "GRPOConfig",
        tables: &[FIRST, grpo::GRPO, trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Grpo),
    },
    Class {
        name: "RLOOConfig",
        tables: &[FIRST, Table::of(preference::RLOO), grpo::GRPO, trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Rloo),
    },
    Class {
        name: "KTOConfig",
        tables: &[FIRST, Table::of(preference::KTO), trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Kto),
    },
    Class {
        name: "ORPOConfig",
        tables: &[FIRST, Table::of(preference::ORPO), trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Orpo),
    },
    Class {
        name: "CPOConfig",
        tables: &[FIRST, Table::of(preference::CPO), trl::SHARED, trainer::ARGUMENTS],
        finish: |facts, file| of_trl(facts, file, trl::Trainer::Cpo),
    },
    Class { name: "ModelConfig", tables: &[trl::SHARED], finish: NOTHING },
    Class {
        name: "SFTTrainer",
        tables: &[Table::of(TRAINERS), Table::of(trl::SFT), trl::SHARED],
        finish: |facts, _| trl::finish_trl(facts, trl::Trainer::Sft, false),
    },
    Class { name: "LoraConfig", tables: &[Table::of(peft::LORA)], finish: of_lora },
    Class { name: "BitsAndBytesConfig", tables: &[Table::of(peft::QUANTIZATION)], finish: NOTHING },
    Class { name: MODEL_CLASS, tables: &[Table::of(MODEL)], finish: NOTHING },
    Class { name: "GenerationConfig", tables: &[Table::of(GENERATION)], finish: NOTHING },
    Class { name: "FastLanguageModel.from_pretrained", tables: &[Table::of(UNSLOTH_LOAD)], finish: of_unsloth },
    Class { name: "FastModel.from_pretrained", tables: &[Table::of(UNSLOTH_LOAD)], finish: of_unsloth },
    Class { name: "FastVisionModel.from_pretrained", tables: &[Table::of(UNSLOTH_LOAD)], finish: of_unsloth },
    Class {
        name: "FastLanguageModel.get_peft_model",
        tables: &[Table::of(UNSLOTH_ADAPTERS)],
        finish: of_unsloth_adapters,
    },
    Class { name: "FastModel.get_peft_model", tables: &[Table::of(UNSLOTH_ADAPTERS)], finish: of_unsloth_adapters },
    Class {
        name: "FastVisionModel.get_peft_model",
        tables: &[Table::of(UNSLOTH_ADAPTERS)],
        finish: of_unsloth_adapters,
    },
    Class { name: "AutoModelForCausalLM.from_pretrained", tables: &[Table::of(LOAD)], finish: of_load },
];

/// What arguments are told without a keyword: `output_dir`, which comes first.
const FIRST: Table = Table::of(&[("argument 1", Reads(output_folder))]);

fn output_folder(_: &mut Facts, said: &Said<'_>) -> Became {
    // A dictionary's keywords are not seen here.
    let is_unpacked = crate::tree::plain_text(said.value).starts_with('*');
    if is_unpacked { Became::NotUnderstood } else { Became::NoMemory(super::words::SAVES) }
}

const IN_SCRIPT: &str = "an object of the script: its own keywords are read";

/// What an object says otherwise than a script: it may stand on a machine without the GPU that is asked about, where transformers
/// takes bf16 only with `use_cpu` (5.17, `training_args.py`).
const LIVE: &[Row] = &[
    ("use_cpu", Notes(ON_A_GPU, Allowance::None)),
    ("no_cuda", Notes(ON_A_GPU, Allowance::None)),
    ("world_size", Reads(super::launch::process_count)),
];

const ON_A_GPU: &str = "the arguments are for the CPU; the figures are of the same training on a GPU";

/// What a live model says.
const MODEL: &[Row] = &[
    ("dtype", Reads(dtype)),
    ("torch_dtype", Reads(dtype)),
    ("attn_implementation", Reads(attention)),
    ("gradient_checkpointing", Reads(is_enabled)),
    ("frozen", Notes(FROZEN, Allowance::Less)),
    ("other_dtypes", Notes(OTHER_DTYPES, Allowance::Unknown)),
    ("other_size", Notes(OTHER_SIZE, Allowance::Unknown)),
    ("adapters", Notes(ADAPTERS, Allowance::Unknown)),
    ("hooks", Notes(HOOKS, Allowance::Unknown)),
];

const FROZEN: &str = "parameters that are not trained are taken as trained, as no key says which: it takes less";
const OTHER_DTYPES: &str = "not all of its parameters have the dtype of the first, which is taken for all";
const OTHER_SIZE: &str = "it has not as many parameters as its config builds, which is what the figures are of";
const ADAPTERS: &str = "several adapters, or such that are not LoRA, are not simulated";
const HOOKS: &str = "its weights are spread over devices or offloaded (`hf_device_map`), which is not simulated";

const GENERATION: &[Row] = &[("*", Free(super::words::SAMPLING))];

/// What `SFTTrainer` itself is told.
const TRAINERS: &[Row] = &[
    ("argument 1", Reads(trained_model)),
    ("model", Reads(trained_model)),
    ("args", Free(IN_SCRIPT)),
    ("tokenizer", Free(TOKENS)),
    ("processing_class", Free(TOKENS)),
    ("train_dataset", Free(DATA)),
    ("eval_dataset", Free(DATA)),
    ("data_collator", Free(DATA)),
    ("formatting_func", Free(DATA)),
    ("callbacks", Free(super::words::LOGS)),
    ("compute_metrics", Free(EVAL)),
    ("peft_config", Free(IN_SCRIPT)),
    ("quantization_config", Free(IN_SCRIPT)),
    ("optimizers", Notes("an optimizer of the script's own is not read", Allowance::Unknown)),
];

/// What Unsloth adds to the arguments.
const UNSLOTH_ARGUMENTS: &[Row] = &[("embedding_learning_rate", Free(super::words::SCALAR))];

const LOAD: &[Row] = &[
    ("argument 1", Reads(positional_model)),
    ("pretrained_model_name_or_path", Sets(keys::MODEL)),
    ("dtype", Reads(dtype)),
    ("torch_dtype", Reads(dtype)),
    ("attn_implementation", Reads(attention)),
    ("device_map", Reads(trl::device_map)),
    ("trust_remote_code", Free(CODE)),
    ("revision", Free(HUB)),
    ("token", Free(HUB)),
    ("cache_dir", Free(HUB)),
    ("low_cpu_mem_usage", Free("how weights reach the host")),
    ("use_cache", Free("the trainer's own use_cache holds")),
    ("quantization_config", Free(IN_SCRIPT)),
    ("load_in_4bit", Reads(quantized::four_bit)),
    ("load_in_8bit", Reads(quantized::eight_bit)),
];

const UNSLOTH_LOAD: &[Row] = &[
    ("model_name", Sets(keys::MODEL)),
    ("argument 1", Reads(positional_model)),
    ("max_seq_length", Sets(keys::SEQ_LEN)),
    ("dtype", Reads(dtype)),
    ("load_in_4bit", Reads(quantized::four_bit_of_unsloth)),
    ("load_in_8bit", Reads(quantized::eight_bit)),
    ("load_in_16bit", Free("as weights are loaded where nothing else is said")),
    ("load_in_fp8", Refuses("fp8 is not simulated")),
    ("full_finetuning", Free("all weights are trained where no adapter is made")),
    ("token", Free(HUB)),
    ("trust_remote_code", Free(CODE)),
    ("use_gradient_checkpointing", Reads(checkpointing)),
    (
        "fast_inference",
        Notes("Unsloth's vLLM beside the trainer is not simulated: it takes its share more", Allowance::Unknown),
    ),
    ("gpu_memory_utilization", Free("only fast_inference reads it")),
    ("max_lora_rank", Free("only fast_inference reads it")),
    ("float8_kv_cache", Free("only fast_inference reads it")),
    ("device_map", Free("which GPU it is loaded to")),
    ("rope_scaling", Free("positions of tokens: no size")),
    ("auto_model", Free(NAME)),
    ("attn_implementation", Reads(attention)),
    ("unsloth_force_compile", Free(NAME)),
    ("revision", Free(HUB)),
    ("random_state", Free(SEED)),
    ("offload_embedding", Notes(super::words::OFFLOAD, Allowance::Less)),
    ("unsloth_tiled_mlp", Notes("an MLP in tiles takes less than is estimated", Allowance::Less)),
];

const UNSLOTH_ADAPTERS: &[Row] = &[
    ("argument 1", Free(IN_SCRIPT)),
    ("model", Free(IN_SCRIPT)),
    ("r", Sets(keys::LORA_R)),
    ("target_modules", Reads(peft::targets)),
    ("lora_alpha", Sets(keys::LORA_ALPHA)),
    ("lora_dropout", Sets(keys::LORA_DROPOUT)),
    ("bias", Reads(peft::bias)),
    ("use_gradient_checkpointing", Reads(checkpointing)),
    ("random_state", Free(SEED)),
    ("max_seq_length", Free("said when the model is loaded")),
    ("use_rslora", Free(super::words::SCALAR)),
    ("loftq_config", Free("how the adapters begin: no size")),
    ("init_lora_weights", Free("how the adapters begin: no size")),
    ("modules_to_save", Reads(peft::modules_to_save)),
    ("target_parameters", Notes(peft::OTHER_TARGETS, Allowance::Unknown)),
    ("use_dora", Sets(keys::LORA_USE_DORA)),
    ("finetune_vision_layers", Reads(super::images::finetune_vision)),
    ("finetune_language_layers", Free("which layers get adapters: all are taken to")),
    ("finetune_attention_modules", Free("which layers get adapters: all are taken to")),
    ("finetune_mlp_modules", Free("which layers get adapters: all are taken to")),
    ("task_type", Free(NAME)),
];

/// Checkpointing that a model was switched to; off it says nothing, a trainer may switch it on.
fn is_enabled(facts: &mut Facts, said: &Said<'_>) -> Became {
    if !is_on(said.value) {
        return Became::NoMemory(OFF);
    }
    checkpointing(facts, said)
}

fn positional_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = crate::tree::plain_text(said.value);
    // A name of the script that nothing gives a value.
    if !word.contains('/')
        && word.chars().all(|c| c.is_alphanumeric() || "_.()".contains(c))
        && word.contains(['_', '.', '('])
    {
        return Became::NotUnderstood;
    }
    facts.set_key(keys::MODEL, said.value, said.place)
}

/// A published model's name, which the trainer loads; or an object of the script.
fn trained_model(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = crate::tree::plain_text(said.value);
    let is_published = word.contains('/') && word.chars().all(|c| c.is_alphanumeric() || "/_-.".contains(c));
    if is_published { facts.set_key(keys::MODEL, said.value, said.place) } else { Became::NoMemory(IN_SCRIPT) }
}

fn of_trainer(facts: &mut Facts, file: &[Entry]) {
    trainer::finish_trainer(facts, file);
    facts.imply_key(keys::FRAMEWORK, "trainer", "the arguments are transformers'");
}

fn of_trl(facts: &mut Facts, file: &[Entry], which: trl::Trainer) {
    trainer::finish_trainer(facts, file);
    // TRL itself loads a model that is named.
    trl::finish_trl(facts, which, facts.live == Some(Live::Name));
}

fn of_lora(facts: &mut Facts, _: &[Entry]) {
    facts.imply_key(keys::LORA_R, 8, "peft's LoraConfig: r");
}

fn of_load(facts: &mut Facts, _: &[Entry]) {
    if facts.weights.is_none() {
        facts.weights = Some((Weights::Published, None));
    }
}

/// What takes the place of 4 bits.
const UNSLOTH_WHOLE: [&str; 4] = ["full_finetuning", "load_in_8bit", "load_in_16bit", "load_in_fp8"];

fn of_unsloth(facts: &mut Facts, file: &[Entry]) {
    let value_of = |key: &str| find_entry(file, key).map(|entry| entry.node.value());
    let is_said = |key: &str| value_of(key).is_some_and(|value| is_on(&value));
    if value_of("load_in_4bit").is_none() && !UNSLOTH_WHOLE.iter().any(|key| is_said(key)) {
        quantized::imply_four_bit_of_unsloth(facts);
    }
    let dtype = value_of("dtype");
    if dtype.is_none_or(|dtype| is_null(&dtype)) {
        facts.weights = Some((Weights::As(crate::facts::Dtype::Bf16), None));
    }
    let text =
        "Unsloth's kernels are not simulated: estimated are transformers' own; `tonnage rehearse` runs the script";
    facts.left_open.push(LeftOpen { text: text.to_owned(), allowance: Allowance::Unknown });
}

fn of_unsloth_adapters(facts: &mut Facts, _: &[Entry]) {
    facts.imply_key(keys::LORA_R, 16, "Unsloth's get_peft_model: r");
    facts.imply_key(keys::GRADIENT_CHECKPOINTING, true, "Unsloth's get_peft_model: use_gradient_checkpointing");
}

/// The class called `name`.
pub fn find_class(name: &str) -> Option<&'static Class> {
    let last = name.rsplit('.').next().unwrap_or_default();
    CLASSES.iter().find(|class| class.name == name || class.name == last)
}

/// Whether a call is one of those that are read.
pub fn is_wanted(function: &str) -> bool {
    find_class(function).is_some()
}

/// Reads the calls of a script; a model that is loaded comes before what trains it.
pub fn read_calls(facts: &mut Facts, calls: &[Call], keys: &mut Vec<KeyRead>) {
    let loads = |call: &&Call| call.function.ends_with("from_pretrained");
    for call in calls.iter().filter(loads).chain(calls.iter().filter(|call| !loads(call))) {
        object(facts, &call.function, &call.keywords, keys);
    }
}

/// The first of `names` that is read; of none, the first.
pub fn known_class(names: &str) -> &str {
    let mut words = names.split(' ');
    let first = words.clone().next().unwrap_or_default();
    words.find(|name| find_class(name).is_some()).unwrap_or(first)
}

/// Reads an object's attributes.
pub fn live_object(facts: &mut Facts, name: &str, entries: &[Entry], keys: &mut Vec<KeyRead>) {
    read_with(facts, name, entries, &[Table::of(LIVE)], keys);
}

/// Reads a call's keywords.
pub fn object(facts: &mut Facts, name: &str, entries: &[Entry], keys: &mut Vec<KeyRead>) {
    read_with(facts, name, entries, &[], keys);
}

fn read_with(facts: &mut Facts, name: &str, entries: &[Entry], first: &[Table], keys: &mut Vec<KeyRead>) {
    let Some(class) = find_class(name) else {
        if entries.is_empty() {
            keys.push(KeyRead { key: name.to_owned(), value: Value::Null, place: None, became: Became::NotUnderstood });
        }
        for entry in entries {
            let (value, place) = (entry.node.value(), entry.place.clone());
            keys.push(KeyRead { key: format!("{name}.{}", entry.key), value, place, became: Became::NotUnderstood });
        }
        return;
    };
    let from = keys.len();
    walk_entries(facts, entries, &[first, class.tables].concat(), keys);
    for read in keys.iter_mut().skip(from) {
        read.key = format!("{}({})", class.name, read.key);
    }
    (class.finish)(facts, entries);
}
