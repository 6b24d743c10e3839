//! Ranks that share the tokens of a row.

/// How many there are, and which this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    pub ranks: u64,
    pub rank: u64,
}

impl Ring {
    /// Whether the keys that come in this turn are of later tokens than the first half of the queries: each rank has a part of the head and
    /// a part of the tail of each row (`_HeadTailLoadBalancer`).
    pub const fn is_behind(self, turn: u64) -> bool {
        turn > self.rank
    }
}
