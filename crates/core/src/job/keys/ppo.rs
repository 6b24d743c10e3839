//! Keys of `[ppo]`: TRL's PPOTrainer and the models beside its policy.

use super::super::kind::Kind;
use super::{Default, Key, MAX_ROWS, names};

const ESTIMATORS: Kind = Kind::Choice(&[("k1", "the difference of log-probabilities"), ("k3", "of lower variance")]);

pub(super) const KEYS: [Key; 8] = [
    Key {
        name: names::PPO_REWARD_MODEL,
        kind: Kind::Text,
        default: Default::Unset,
        doc: "the model that rewards, with a score for a head: a hub name or a path to a config.json",
        example: "\"Qwen/Qwen2.5-0.5B\"",
    },
    Key {
        name: names::PPO_VALUE_MODEL,
        kind: Kind::Text,
        default: Default::Rule("the reward model's, as TRL's script has it"),
        doc: "the critic, which is trained with the policy, with a score for a head",
        example: "\"Qwen/Qwen2.5-0.5B\"",
    },
    Key {
        name: names::PPO_NUM_PPO_EPOCHS,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Fixed("4", "TRL's default"),
        doc: "how often an update trains on its rows",
        example: "2",
    },
    Key {
        name: names::PPO_NUM_MINI_BATCHES,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Fixed("1", "TRL's default"),
        doc: "parts of an update's rows, after each of which what a pass left is let go",
        example: "4",
    },
    Key {
        name: names::PPO_LOCAL_ROLLOUT_FORWARD_BATCH_SIZE,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Fixed("64", "TRL's default"),
        doc: "rows that are generated and scored at once",
        example: "16",
    },
    Key {
        name: names::PPO_WHITEN_REWARDS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's default"),
        doc: "rewards are whitened",
        example: "true",
    },
    Key {
        name: names::PPO_KL_ESTIMATOR,
        kind: ESTIMATORS,
        default: Default::Fixed("\"k1\"", "TRL's default"),
        doc: "how the divergence from the reference is estimated",
        example: "\"k3\"",
    },
    Key {
        name: names::PPO_STOP_TOKEN,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's stop_token is none"),
        doc: "answers are cut at the end token (TRL's stop_token=\"eos\")",
        example: "true",
    },
];
