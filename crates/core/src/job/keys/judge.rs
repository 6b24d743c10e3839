//! Keys of `[judge]`: a second model that scores the policy's completions.

use super::super::kind::Kind;
use super::{Default, Key, MAX_ROWS, MAX_TOKENS, MOST_NEW_TOKENS, names};

pub(super) const WEIGHTS: Kind = Kind::Choice(&[
    ("fp32", "4 bytes a weight"),
    ("bf16", "2 bytes a weight"),
    ("int8", "bitsandbytes LLM.int8()"),
    ("nf4", "bitsandbytes NF4, in blocks of 64"),
]);
pub(super) const PHASES: Kind =
    Kind::Choice(&[("generate", "it answers: a prefill, then token by token"), ("forward", "one forward pass scores")]);
pub(super) const PLACES: Kind = Kind::Choice(&[
    ("same_gpu", "on the policy's GPU, all the time"),
    ("other_gpu", "on a GPU of its own"),
    ("cpu", "in the host's memory"),
    ("offload", "on the policy's GPU while it judges, in the host's memory otherwise"),
]);

pub(super) const KEYS: [Key; 7] = [
    Key {
        name: names::JUDGE_MODEL,
        kind: Kind::Text,
        default: Default::Unset,
        doc: "a second model that scores completions: a hub name or a path to a config.json",
        example: "\"Qwen/Qwen2.5-14B\"",
    },
    Key {
        name: names::JUDGE_WEIGHTS,
        kind: WEIGHTS,
        default: Default::Fixed("\"bf16\"", "what published judges are stored in"),
        doc: "how its weights are stored",
        example: "\"int8\"",
    },
    Key {
        name: names::JUDGE_PHASE,
        kind: PHASES,
        default: Default::Fixed("\"generate\"", "an evaluator answers"),
        doc: "what it does with a completion",
        example: "\"forward\"",
    },
    Key {
        name: names::JUDGE_EXTRA_PROMPT_TOKENS,
        kind: Kind::Size { min: 0, max: MAX_TOKENS },
        default: Default::Fixed("32", "a short instruction"),
        doc: "tokens of its input beside prompt and completion",
        example: "128",
    },
    Key {
        name: names::JUDGE_NEW_TOKENS,
        kind: Kind::Size { min: 1, max: MOST_NEW_TOKENS },
        default: Default::Fixed("64", "a short verdict"),
        doc: "tokens it generates per completion",
        example: "256",
    },
    Key {
        name: names::JUDGE_ROWS,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Rule("all completions of a generation batch"),
        doc: "rows it reads at once",
        example: "8",
    },
    Key {
        name: names::JUDGE_PLACE,
        kind: PLACES,
        default: Default::Fixed("\"same_gpu\"", "where a trainer's process loads it"),
        doc: "where it runs",
        example: "\"other_gpu\"",
    },
];
