//! Keys of `[lora]`: adapters as peft makes them.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const KEYS: [Key; 4] = [
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
];
