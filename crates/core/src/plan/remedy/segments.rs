//! Allocator settings: fragments become usable.

use crate::job::keys;

use super::{Remedy, Results, already_done, change_one};

/// Segments that grow.
pub const EXPANDABLE: Remedy = Remedy {
    name: "expandable_segments",
    text: "let segments grow instead of allocating new ones",
    results: Results::Same,
    caution: "",
    apply: |job| match job.allocator.expandable_segments {
        true => already_done("segments are expandable already"),
        false => change_one(keys::ALLOCATOR_EXPANDABLE_SEGMENTS, "true"),
    },
};
