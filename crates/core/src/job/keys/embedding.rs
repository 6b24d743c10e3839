//! Keys of `[embedding]`: how sentence-transformers trains a model whose embeddings are near or far.

use super::super::kind::Kind;
use super::{Default, Key, MAX_ROWS, MAX_TOKENS, names};

pub(super) const POOLINGS: Kind = Kind::Choice(&[
    ("mean", "the mean of all tokens"),
    ("cls", "the first token"),
    ("lasttoken", "the last token, as decoders have it"),
]);

pub(super) const KEYS: [Key; 5] = [
    Key {
        name: names::EMBEDDING_ANCHOR_LEN,
        kind: Kind::Size { min: 1, max: MAX_TOKENS },
        default: Default::Rule("those of seq_len"),
        doc: "tokens of an anchor; those of positives and negatives are seq_len",
        example: "64",
    },
    Key {
        name: names::EMBEDDING_NEGATIVES,
        kind: Kind::Size { min: 0, max: 1 << 10 },
        default: Default::Fixed("0", "pairs of anchors and positives"),
        doc: "hard negatives of each anchor, columns of the data beside its positive",
        example: "1",
    },
    Key {
        name: names::EMBEDDING_POOLING,
        kind: POOLINGS,
        default: Default::Rule("mean, of a decoder lasttoken"),
        doc: "Pooling's pooling_mode",
        example: "\"cls\"",
    },
    Key {
        name: names::EMBEDDING_NORMALIZE,
        kind: Kind::Switch,
        default: Default::Fixed("true", "most published models' modules end in Normalize"),
        doc: "a Normalize module stands behind the pooling",
        example: "false",
    },
    Key {
        name: names::EMBEDDING_MINI_BATCH_SIZE,
        kind: Kind::Size { min: 0, max: MAX_ROWS },
        default: Default::Fixed("0", "MultipleNegativesRankingLoss, which embeds a batch at once"),
        doc: "rows that CachedMultipleNegativesRankingLoss embeds at once (GradCache); 0: the loss is not cached",
        example: "32",
    },
];
