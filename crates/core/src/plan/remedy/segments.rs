//! Allocator settings: fragments become usable.

use super::{Remedy, Results, done, one};

/// The key of the setting.
pub const KEY: &str = "allocator.expandable_segments";

/// Segments that grow.
pub const EXPANDABLE: Remedy = Remedy {
    name: "expandable_segments",
    text: "let segments grow instead of allocating new ones",
    results: Results::Same,
    caution: "",
    apply: |job| match job.allocator.expandable_segments {
        true => done("segments are expandable already"),
        false => one(KEY, "true"),
    },
};
