//! Keys of `[allocator]`: the settings of `PYTORCH_ALLOC_CONF`.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const KEYS: [Key; 8] = [
    Key {
        name: names::ALLOCATOR,
        kind: Kind::Text,
        default: Default::Unset,
        doc: "allocator settings as in PYTORCH_ALLOC_CONF; replaces the [allocator] table",
        example: "\"expandable_segments:True\"",
    },
    Key {
        name: names::ALLOCATOR_EXPANDABLE_SEGMENTS,
        kind: Kind::Switch,
        default: Default::Unset,
        doc: "grow segments by mapping pages instead of allocating new ones",
        example: "true",
    },
    // Before the two keys whose least value depends on it.
    Key {
        name: names::ALLOCATOR_LARGE_SEGMENT_SIZE_MB,
        kind: Kind::Size { min: 11, max: 1 << 30 },
        default: Default::Unset,
        doc: "segment size of the large pool, in MiB",
        example: "32",
    },
    Key {
        name: names::ALLOCATOR_MAX_SPLIT_SIZE_MB,
        kind: Kind::Size { min: 21, max: 1 << 30 },
        default: Default::Unset,
        doc: "blocks above this size, in MiB, are never split",
        example: "128",
    },
    Key {
        name: names::ALLOCATOR_MAX_NON_SPLIT_ROUNDING_MB,
        kind: Kind::Size { min: 21, max: 1 << 30 },
        default: Default::Unset,
        doc: "how much larger than the request a block that is not split may be, in MiB",
        example: "64",
    },
    Key {
        name: names::ALLOCATOR_ROUNDUP_POWER2_DIVISIONS,
        kind: Kind::TextOrNumber,
        default: Default::Unset,
        doc: "round requests up to this many steps between powers of two; one number or a list by size",
        example: "\"[256:1,512:2,>:4]\"",
    },
    Key {
        name: names::ALLOCATOR_GARBAGE_COLLECTION_THRESHOLD,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Unset,
        doc: "share of the memory fraction at which unused blocks are freed",
        example: "0.8",
    },
    Key {
        name: names::ALLOCATOR_PER_PROCESS_MEMORY_FRACTION,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Unset,
        doc: "share of the GPU that the process may reserve",
        example: "0.9",
    },
];
