//! Keys of `[lora]`: adapters as peft makes them.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const KEYS: [Key; 6] = [
    Key {
        name: names::LORA_R,
        kind: Kind::Size { min: 1, max: 1 << 16 },
        default: Default::Fixed("8", "peft's default"),
        doc: "rank of the LoRA adapters",
        example: "16",
    },
    Key {
        name: names::LORA_ALPHA,
        kind: Kind::Number { min: 0.0, max: f64::MAX },
        default: Default::Fixed("8.0", "peft's default"),
        doc: "scale of the adapters; costs no memory",
        example: "32",
    },
    Key {
        name: names::LORA_DROPOUT,
        kind: Kind::Number { min: 0.0, max: 0.99 },
        default: Default::Fixed("0.0", "peft's default"),
        doc: "dropout on the adapters' input",
        example: "0.05",
    },
    Key {
        name: names::LORA_TARGETS,
        kind: Kind::Texts,
        default: Default::Rule("peft's target modules for the model type"),
        doc: "linear layers that get an adapter, by name, or \"all-linear\"; \"all-linear-names\" where the program lists their names for peft",
        example: "[\"q_proj\", \"v_proj\"]",
    },
    Key {
        name: names::LORA_MODULES_TO_SAVE,
        kind: Kind::Texts,
        default: Default::Rule("none"),
        doc: "embeddings and output head that are trained in full beside the adapters: a copy of each stands in for it",
        example: "[\"embed_tokens\", \"lm_head\"]",
    },
    Key {
        name: names::LORA_USE_DORA,
        kind: Kind::Switch,
        default: Default::Fixed("false", "peft's default"),
        doc: "DoRA: a magnitude of each output is trained beside its direction, which is computed anew in each pass",
        example: "true",
    },
];
