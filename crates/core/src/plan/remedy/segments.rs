//! Allocator settings: fragments become usable.

use super::{Remedy, Results, done, one};

pub(super) const EXPANDABLE: Remedy = Remedy {
    name: "expandable_segments",
    text: "let segments grow instead of allocating new ones",
    results: Results::Same,
    caution: "",
    apply: |job| match job.allocator.expandable_segments {
        true => done("segments are expandable already"),
        false => one("allocator.expandable_segments", "true"),
    },
};
