//! Keys of `[reward]`: how TRL's RewardTrainer trains a model that scores rows.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const KEYS: [Key; 2] = [
    Key {
        name: names::REWARD_CENTER_REWARDS_COEFFICIENT,
        kind: Kind::Number { min: 0.0, max: f64::MAX },
        default: Default::Fixed("0.0", "TRL's: none"),
        doc: "weight of the loss that keeps rewards around zero",
        example: "0.01",
    },
    Key {
        name: names::REWARD_DISABLE_DROPOUT,
        kind: Kind::Switch,
        default: Default::Fixed("true", "TRL's default"),
        doc: "dropout is turned off, whatever the model's config says",
        example: "false",
    },
];
