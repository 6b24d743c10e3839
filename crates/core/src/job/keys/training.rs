//! Keys of what a training learns by, in TrainingArguments' words, of its data, and of what is generated from it. They change no
//! byte of a step, but for `weight_decay` above 0 of some optimizers; `tonnage train` and `tonnage generate` read them.

use super::super::kind::Kind;
use super::{Default, Key, MOST_NEW_TOKENS, names};

/// The learning-rate schedules, by their names in transformers.
pub(super) const SCHEDULES: Kind = Kind::Choice(&[
    ("linear", "down to 0 at the last step"),
    ("cosine", "half a cosine down to 0"),
    ("constant", "the same rate in every step"),
    ("constant_with_warmup", "the same rate after the warm-up"),
    ("inverse_sqrt", "one over the square root of the step after the warm-up"),
]);

/// Where the first weights come from.
pub(super) const INITS: Kind = Kind::Choice(&[
    ("auto", "those beside the config, where there are any, else new ones"),
    ("from_pretrained", "those beside the config; without them training is refused"),
    ("from_config", "new ones, as transformers initialises them"),
]);

/// More steps than any training has.
const STEPS: Kind = Kind::Size { min: 1, max: 1 << 40 };

const fn training_key(
    name: &'static str,
    kind: Kind,
    default: Default,
    doc: &'static str,
    example: &'static str,
) -> Key {
    Key { name, kind, default, doc, example }
}

const fn fixed_default(json: &'static str) -> Default {
    Default::Fixed(json, "transformers' default")
}

pub(super) const KEYS: [Key; 31] = [
    training_key(
        names::LEARNING_RATE,
        Kind::Number { min: 0.0, max: 1e3 },
        fixed_default("5e-5"),
        "the optimizer's learning rate, at its highest",
        "3e-4",
    ),
    training_key(
        names::LR_SCHEDULER_TYPE,
        SCHEDULES,
        fixed_default("\"linear\""),
        "how the learning rate falls after the warm-up",
        "\"cosine\"",
    ),
    training_key(
        names::WARMUP_STEPS,
        Kind::Number { min: 0.0, max: 1e12 },
        fixed_default("0.0"),
        "steps in which the learning rate rises from 0; below 1 it is a share of all steps",
        "100",
    ),
    training_key(
        names::WEIGHT_DECAY,
        Kind::Number { min: 0.0, max: 1e3 },
        fixed_default("0.0"),
        "the optimizer's weight decay, of all weights alike; the Trainer leaves out biases and norms",
        "0.1",
    ),
    training_key(
        names::ADAM_BETA1,
        Kind::Number { min: 0.0, max: 0.999_999 },
        fixed_default("0.9"),
        "how much of the average of gradients Adam keeps in a step",
        "0.95",
    ),
    training_key(
        names::ADAM_BETA2,
        Kind::Number { min: 0.0, max: 0.999_999 },
        fixed_default("0.999"),
        "how much of the average of squared gradients Adam keeps in a step",
        "0.95",
    ),
    training_key(
        names::ADAM_EPSILON,
        Kind::Number { min: 0.0, max: 1.0 },
        fixed_default("1e-8"),
        "what Adam adds to the root of the squares",
        "1e-6",
    ),
    training_key(
        names::SEED,
        Kind::Size { min: 0, max: u32::MAX as u64 },
        fixed_default("42"),
        "decides new weights, the order of the data, and dropout",
        "1",
    ),
    training_key(
        names::INIT,
        INITS,
        Default::Fixed("\"auto\"", "what a model's folder holds is what is meant by it"),
        "where the first weights come from",
        "\"from_config\"",
    ),
    training_key(
        names::OUTPUT_DIR,
        Kind::Text,
        Default::Rule("runs/ and the job file's name"),
        "the folder of checkpoints and metrics",
        "\"runs/small\"",
    ),
    training_key(
        names::LOGGING_STEPS,
        STEPS,
        Default::Fixed("10", "a point often enough to draw a curve; transformers has 500"),
        "steps between two points of metrics.jsonl",
        "50",
    ),
    training_key(
        names::EVAL_STEPS,
        STEPS,
        Default::Rule("whenever a checkpoint is saved"),
        "steps between two evaluations",
        "200",
    ),
    training_key(
        names::EARLY_STOPPING_PATIENCE,
        STEPS,
        Default::Unset,
        "evaluations in a row without a lower loss, after which it ends; epochs of training for the guide's small GPT",
        "3",
    ),
    training_key(
        names::SAVE_STEPS,
        STEPS,
        fixed_default("500"),
        "steps between two checkpoints; the last step has one",
        "1000",
    ),
    training_key(
        names::SAVE_TOTAL_LIMIT,
        Kind::Size { min: 1, max: 1 << 20 },
        Default::Fixed("2", "the last and one to fall back on; transformers keeps all"),
        "checkpoints that are kept, the newest",
        "5",
    ),
    training_key(
        names::RESUME_FROM_CHECKPOINT,
        Kind::Text,
        Default::Unset,
        "a checkpoint to go on with where the output folder has none: its folder",
        "\"runs/small/checkpoint-500\"",
    ),
    training_key(
        names::USE_CPU,
        Kind::Switch,
        fixed_default("false"),
        "trains on the CPU though there is a GPU",
        "true",
    ),
    training_key(
        names::DATA_TRAIN_FILES,
        Kind::Texts,
        Default::Unset,
        "texts to train on: plain text, or JSON lines of `text`, `prompt` and `completion`, or `messages`",
        "[\"corpus.txt\"]",
    ),
    training_key(
        names::DATA_EVAL_FILES,
        Kind::Texts,
        Default::Unset,
        "texts to evaluate on, in place of a share of the others",
        "[\"held-out.txt\"]",
    ),
    training_key(
        names::DATA_EVAL_SHARE,
        Kind::Number { min: 0.0, max: 0.9 },
        Default::Fixed("0.05", "as transformers' run_clm.py holds out where no validation file is given"),
        "the share of the texts that is evaluated on, at their end",
        "0.1",
    ),
    training_key(
        names::DATA_TOKENIZER,
        Kind::Text,
        Default::Rule("the model's tokenizer.json, else bytes"),
        "how text becomes tokens: a tokenizer.json or its folder, `bytes`, or `characters` of the texts",
        "\"bytes\"",
    ),
    training_key(
        names::DATA_TEXT_FIELD,
        Kind::Text,
        Default::Fixed("\"text\"", "what most data sets call it"),
        "the field of a JSON line that holds its text",
        "\"content\"",
    ),
    training_key(
        names::DATA_END_OF_TEXT,
        Kind::TextOrNumber,
        Default::Rule("the model's eos_token_id, where its tokenizer has it"),
        "the token between two texts, as text or as a number",
        "\"<|endoftext|>\"",
    ),
    training_key(
        names::DATA_ASSISTANT_ONLY_LOSS,
        Kind::Switch,
        Default::Fixed("true", "as `prompt` and `completion` are learnt; TRL's SFTConfig has false"),
        "of `messages`, learns what the assistant says; else all of the conversation",
        "false",
    ),
    training_key(
        names::GENERATION_MAX_NEW_TOKENS,
        Kind::Size { min: 1, max: MOST_NEW_TOKENS },
        Default::Fixed("100", "a paragraph; transformers has 20"),
        "tokens that are generated at most",
        "300",
    ),
    training_key(
        names::GENERATION_DO_SAMPLE,
        Kind::Switch,
        fixed_default("false"),
        "draws each token by chance, in place of the likeliest",
        "true",
    ),
    training_key(
        names::GENERATION_TEMPERATURE,
        Kind::Number { min: 0.0, max: 100.0 },
        fixed_default("1.0"),
        "flattens (above 1) or sharpens what is drawn from; 0 is the likeliest token",
        "0.8",
    ),
    training_key(
        names::GENERATION_TOP_K,
        Kind::Size { min: 0, max: 1 << 31 },
        fixed_default("50"),
        "tokens that are drawn from, the likeliest; 0 for all",
        "40",
    ),
    training_key(
        names::GENERATION_TOP_P,
        Kind::Number { min: 0.0, max: 1.0 },
        fixed_default("1.0"),
        "the likeliest tokens that together have this probability are drawn from",
        "0.95",
    ),
    training_key(
        names::GENERATION_NUM_BEAMS,
        Kind::Size { min: 1, max: 1024 },
        fixed_default("1"),
        "texts that are followed at once, the likeliest",
        "4",
    ),
    training_key(
        names::GENERATION_PROMPT,
        Kind::Text,
        Default::Unset,
        "a text that stands before all that is to be continued",
        "\"In Verona, \"",
    ),
];
