//! Keys of `[allocator]`: the settings of `PYTORCH_ALLOC_CONF`.

use super::super::kind::Kind;
use super::{Default, Key};

/// The rows.
pub(super) const KEYS: [Key; 8] = [
    Key {
        name: "allocator",
        kind: Kind::Text,
        default: Default::Unset,
        doc: "allocator settings as in PYTORCH_ALLOC_CONF; replaces the [allocator] table",
        example: "\"expandable_segments:True\"",
    },
    Key {
        name: "allocator.expandable_segments",
        kind: Kind::Switch,
        default: Default::Unset,
        doc: "grow segments by mapping pages instead of allocating new ones",
        example: "true",
    },
    // Before the two keys whose least value depends on it.
    Key {
        name: "allocator.large_segment_size_mb",
        kind: Kind::Size { min: 11, max: 1 << 30 },
        default: Default::Unset,
        doc: "segment size of the large pool, in MiB",
        example: "32",
    },
    Key {
        name: "allocator.max_split_size_mb",
        kind: Kind::Size { min: 21, max: 1 << 30 },
        default: Default::Unset,
        doc: "blocks above this size, in MiB, are never split",
        example: "128",
    },
    Key {
        name: "allocator.max_non_split_rounding_mb",
        kind: Kind::Size { min: 21, max: 1 << 30 },
        default: Default::Unset,
        doc: "how much larger than the request a block that is not split may be, in MiB",
        example: "64",
    },
    Key {
        name: "allocator.roundup_power2_divisions",
        kind: Kind::TextOrNumber,
        default: Default::Unset,
        doc: "round requests up to this many steps between powers of two; one number or a list by size",
        example: "\"[256:1,512:2,>:4]\"",
    },
    Key {
        name: "allocator.garbage_collection_threshold",
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Unset,
        doc: "share of the memory fraction at which unused blocks are freed",
        example: "0.8",
    },
    Key {
        name: "allocator.per_process_memory_fraction",
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Unset,
        doc: "share of the GPU that the process may reserve",
        example: "0.9",
    },
];
