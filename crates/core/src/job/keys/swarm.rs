//! Keys of `[swarm]`: nodes that share GPUs and completions, as GenRL runs them.

use super::super::kind::Kind;
use super::{Default, Key, MAX_ROWS, names};

pub(super) const LOG_PROBS: Kind = Kind::Choice(&[
    ("full", "all logits, one cross-entropy (GenRL)"),
    ("chunked", "all logits, the cross-entropy in chunks of rows"),
    ("chunked_head", "head and cross-entropy in chunks of rows, made again in backward"),
]);

pub(super) const KEYS: [Key; 10] = [
    Key {
        name: names::SWARM_NODES,
        kind: Kind::Size { min: 1, max: 1 << 16 },
        default: Default::Fixed("1", "one node"),
        doc: "nodes in the swarm, each a process of its own",
        example: "8",
    },
    Key {
        name: names::SWARM_GPUS,
        kind: Kind::Size { min: 1, max: 1 << 16 },
        default: Default::Fixed("1", "all nodes on one GPU"),
        doc: "GPUs that the nodes share, as evenly as can be",
        example: "2",
    },
    Key {
        name: names::SWARM_LEASE,
        kind: Kind::Size { min: 1, max: 1 << 16 },
        default: Default::Rule("every node at once"),
        doc: "how many nodes of a GPU may be between forward and optimizer at once",
        example: "1",
    },
    Key {
        name: names::SWARM_LOCAL_QUESTIONS,
        kind: Kind::Size { min: 0, max: MAX_ROWS },
        default: Default::Fixed("8", "the baseline of the SAPO paper"),
        doc: "own questions a round (I)",
        example: "4",
    },
    Key {
        name: names::SWARM_EXTERNAL_QUESTIONS,
        kind: Kind::Size { min: 0, max: MAX_ROWS },
        default: Default::Fixed("0", "the baseline of the SAPO paper"),
        doc: "other nodes' questions a round (J)",
        example: "4",
    },
    Key {
        name: names::SWARM_GENERATE_ROWS,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Rule("the local questions: GenRL generates one completion of each at a time"),
        doc: "rows per call of generate",
        example: "64",
    },
    Key {
        name: names::SWARM_LOG_PROBS,
        kind: LOG_PROBS,
        default: Default::Fixed("\"full\"", "what GenRL does"),
        doc: "how log-probabilities are computed",
        example: "\"chunked_head\"",
    },
    Key {
        name: names::SWARM_ROWS_PER_CHUNK,
        kind: Kind::Size { min: 1, max: MAX_ROWS },
        default: Default::Fixed("8", "a small chunk"),
        doc: "rows of a chunk",
        example: "8",
    },
    Key {
        name: names::SWARM_LOGITS_TO_KEEP,
        kind: Kind::Switch,
        default: Default::Fixed("true", "what GenRL does"),
        doc: "the head computes the completion's logits only",
        example: "true",
    },
    Key {
        name: names::SWARM_EMPTY_CACHE,
        kind: Kind::Switch,
        default: Default::Fixed("true", "what GenRL does"),
        doc: "torch.cuda.empty_cache() at the end of every step",
        example: "false",
    },
];
