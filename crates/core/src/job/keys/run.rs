//! Keys of what a training costs: how long it is, and what its user knows of its time and price. They change no byte.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const KEYS: [Key; 7] = [
    Key {
        name: names::MAX_STEPS,
        kind: Kind::Size { min: 1, max: 1 << 40 },
        default: Default::Unset,
        doc: "optimizer steps of the whole training (a swarm's rounds), for time and price",
        example: "10_000",
    },
    Key {
        name: names::NUM_TRAIN_EPOCHS,
        kind: Kind::Number { min: 0.0, max: 1e6 },
        default: Default::Fixed("1.0", "once through the data set"),
        doc: "how often the data set is gone through, with train_rows",
        example: "3.0",
    },
    Key {
        name: names::TRAIN_ROWS,
        kind: Kind::Size { min: 1, max: 1 << 40 },
        default: Default::Unset,
        doc: "rows of the data set (prompts for grpo, pairs for dpo), for time and price",
        example: "52_000",
    },
    Key {
        name: names::TRAIN_TOKENS,
        kind: Kind::Size { min: 1, max: 1 << 60 },
        default: Default::Unset,
        doc: "tokens of the whole training, padding included, for time and price",
        example: "1_000_000_000",
    },
    Key {
        name: names::STEP_TIME,
        kind: Kind::Number { min: 1e-6, max: 1e9 },
        default: Default::Unset,
        doc: "seconds of an optimizer step as you measured it; replaces our estimate",
        example: "1.85",
    },
    Key {
        name: names::PRICE,
        kind: Kind::Number { min: 0.0, max: 1e6 },
        default: Default::Unset,
        doc: "dollars that you pay for an hour of one GPU; replaces our list",
        example: "2.49",
    },
    Key {
        name: names::ALLOW_TF32,
        kind: Kind::Switch,
        default: Default::Fixed("false", "PyTorch's default"),
        doc: "fp32 products run in TF32 on tensor cores; changes time only",
        example: "true",
    },
];
