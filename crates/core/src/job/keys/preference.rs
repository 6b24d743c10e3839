//! Keys of TRL's preference trainers beside DPO: `[kto]` and `[cpo]`.

use super::super::kind::Kind;
use super::{Default, Key, MAX_ROWS, names};

const KTO_LOSSES: Kind = Kind::Choice(&[
    ("kto", "the divergence is estimated from mismatched answers, one more pass of policy and reference"),
    ("apo_zero_unpaired", "without that pass"),
]);
const CPO_LOSSES: Kind = Kind::Choice(&[
    ("sigmoid", "CPO's own"),
    ("hinge", "with a margin at most"),
    ("ipo", "of means over an answer's tokens, squared"),
    ("simpo", "SimPO's: of means over an answer's tokens, with a margin"),
]);

pub(super) const KEYS: [Key; 5] = [
    Key {
        name: names::KTO_PRECOMPUTE_REF_LOG_PROBS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's default"),
        doc: "the reference's log-probabilities are computed once, before training",
        example: "true",
    },
    Key {
        name: names::KTO_LOSS,
        kind: KTO_LOSSES,
        default: Default::Fixed("\"kto\"", "TRL's default"),
        doc: "TRL's loss_type",
        example: "\"apo_zero_unpaired\"",
    },
    Key {
        name: names::KTO_DESIRABLE_ROWS,
        kind: Kind::Size { min: 0, max: MAX_ROWS },
        default: Default::Rule("half of micro_batch_size"),
        doc: "rows of a batch whose answer is desirable: data decides, and only what is logged depends on it",
        example: "1",
    },
    Key {
        name: names::CPO_LOSS,
        kind: CPO_LOSSES,
        default: Default::Fixed("\"sigmoid\"", "TRL's default"),
        doc: "TRL's loss_type",
        example: "\"simpo\"",
    },
    Key {
        name: names::CPO_ALPHA,
        kind: Kind::Number { min: 0.0, max: f64::MAX },
        default: Default::Fixed("1.0", "TRL's cpo_alpha"),
        doc: "weight of the chosen answers' likelihood; at 0 it is not computed",
        example: "0.0",
    },
];
