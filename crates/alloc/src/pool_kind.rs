//! Which of the two pools a request is served from.

use super::config::SMALL_SIZE;

/// Which pool a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// Requests up to 1 MiB, cut from segments of 2 MiB.
    Small,
    /// Requests over 1 MiB (`kSmallSize`).
    Large,
}

impl PoolKind {
    /// The pool for a block of `size` bytes.
    pub(super) fn for_size(size: u64) -> Self {
        if size <= SMALL_SIZE { Self::Small } else { Self::Large }
    }
}
