//! Keys of `[gkd]`: how TRL's GKDTrainer distils a teacher.

use super::super::kind::Kind;
use super::{Default, Key, MOST_NEW_TOKENS, names};

const DTYPES: Kind = Kind::Choice(&[("fp32", "4 bytes a weight"), ("bf16", "2 bytes a weight")]);

pub(super) const KEYS: [Key; 6] = [
    Key {
        name: names::GKD_TEACHER_MODEL,
        kind: Kind::Text,
        default: Default::Unset,
        doc: "the model that is learnt from, of the student's vocabulary: a hub name or a path to a config.json",
        example: "\"Qwen/Qwen2.5-1.5B\"",
    },
    Key {
        name: names::GKD_TEACHER_DTYPE,
        kind: DTYPES,
        default: Default::Fixed("\"bf16\"", "what published teachers are stored in"),
        doc: "the dtype of the teacher's weights",
        example: "\"fp32\"",
    },
    Key {
        name: names::GKD_LMBDA,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Fixed("0.5", "TRL's default"),
        doc: "the share of passes in which the student generates what it is trained on; between 0 and 1 every second pass is simulated as one",
        example: "1.0",
    },
    Key {
        name: names::GKD_MAX_NEW_TOKENS,
        kind: Kind::Size { min: 1, max: MOST_NEW_TOKENS },
        default: Default::Fixed("128", "TRL's default"),
        doc: "tokens of an answer that is generated; with gradient_checkpointing each token runs all before it again",
        example: "256",
    },
    Key {
        name: names::GKD_BETA,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Fixed("0.5", "TRL's default"),
        doc: "between the divergence of the teacher from the student (0) and its reverse (1); between them both are taken from a mixture",
        example: "0.0",
    },
    Key {
        name: names::GKD_SEQ_KD,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's default"),
        doc: "where the student does not generate, the teacher does",
        example: "true",
    },
];
