//! Keys of `[swarm]` that change no byte: where nodes meet, what they share, and what they take. `tonnage train` reads them.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const FILTERS: Kind = Kind::Choice(&[
    ("none", "any group, by chance"),
    ("zero_advantage", "groups whose rewards differ, by chance, as the SAPO paper's experiments"),
    ("top_reward", "groups that earned most, as GenRL's recipe"),
]);
pub(super) const FOREIGN_ADVANTAGES: Kind = Kind::Choice(&[
    ("both", "all completions, as if the node had written them, as GenRL does"),
    ("positive", "completions that are better than their group"),
]);

/// Rounds, and MiB, at most.
const MANY: u64 = 1 << 20;

pub(super) const KEYS: [Key; 10] = [
    Key {
        name: names::SWARM_FOLDER,
        kind: Kind::Text,
        default: Default::Rule("`swarm` in the output folder"),
        doc: "the folder that nodes share: on one machine, or mounted on several",
        example: "\"/mnt/swarm\"",
    },
    Key {
        name: names::SWARM_EXPERIMENT,
        kind: Kind::Text,
        default: Default::Fixed("\"sapo\"", "the algorithm's name"),
        doc: "the experiment's name, by which others join it",
        example: "\"sapo-4-4\"",
    },
    Key {
        name: names::SWARM_FILTER,
        kind: FILTERS,
        default: Default::Fixed("\"zero_advantage\"", "what the SAPO paper's experiments do"),
        doc: "which of other nodes' groups are trained on",
        example: "\"top_reward\"",
    },
    Key {
        name: names::SWARM_FOREIGN_ADVANTAGES,
        kind: FOREIGN_ADVANTAGES,
        default: Default::Fixed("\"positive\"", "with both signs small experiments lost by sharing"),
        doc: "which of other nodes' completions are learnt from",
        example: "\"both\"",
    },
    Key {
        name: names::SWARM_SPECIALTIES,
        kind: Kind::Switch,
        default: Default::Fixed("false", "every node asks all kinds"),
        doc: "each node asks one kind of question, in turn; all are evaluated on all",
        example: "true",
    },
    Key {
        name: names::SWARM_ROUND_SECONDS,
        kind: Kind::Number { min: 0.001, max: 1e6 },
        default: Default::Fixed("60.0", "the interval of rl-swarm's coordinator"),
        doc: "seconds after which a round ends without those who have not published; it ends at once when all have",
        example: "120.0",
    },
    Key {
        name: names::SWARM_QUORUM,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Fixed("0.5", "half of those who are waited for"),
        doc: "the share of those who are waited for that ends a round at its deadline",
        example: "0.75",
    },
    Key {
        name: names::SWARM_KEEP_ROUNDS,
        kind: Kind::Size { min: 2, max: MANY },
        default: Default::Fixed("10", "rl-swarm's ROLLOUT_KEEP_LAST_N_ROUNDS"),
        doc: "rounds whose files are kept in the shared folder",
        example: "20",
    },
    Key {
        name: names::SWARM_PUBLISH_EVERY,
        kind: Kind::Size { min: 1, max: MANY },
        default: Default::Fixed("1", "every round"),
        doc: "rounds between two publications of a node; in the others it publishes that it has none",
        example: "2",
    },
    Key {
        name: names::SWARM_MAX_FILE_MIB,
        kind: Kind::Size { min: 1, max: 1 << 10 },
        default: Default::Fixed("4", "a hundred times what 64 completions of 256 tokens take"),
        doc: "MiB of what a node publishes in a round; a larger file is ignored",
        example: "16",
    },
];
