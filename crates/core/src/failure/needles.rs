//! The prefilter: one search for every needle of every signature, and which signatures a line is worth showing to.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind, packed};
use memchr::memchr;

use super::signature::SIGNATURES;

/// All needles. A line without any is never looked at.
pub(super) struct Needles {
    search: Search,
    /// Bit `i`: signature `i` has this needle.
    signatures: Vec<u64>,
}

/// Vector instructions where there are any and the needles are few enough for them.
enum Search {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
    /// Needles that no search can be made of: every line is looked at.
    Everything,
}

const ESCAPE: u8 = 0x1b;

impl Needles {
    /// The needles of [`SIGNATURES`], made once.
    pub(super) fn all() -> &'static Self {
        static ALL: OnceLock<Needles> = OnceLock::new();
        ALL.get_or_init(Self::new)
    }

    fn new() -> Self {
        let mut texts: Vec<&str> = Vec::new();
        let mut signatures: Vec<u64> = Vec::new();
        for (at, signature) in SIGNATURES.iter().enumerate() {
            for needle in signature.needles {
                let index = texts.iter().position(|text| text == needle).unwrap_or_else(|| {
                    texts.push(needle);
                    signatures.push(0);
                    texts.len() - 1
                });
                if let Some(mask) = signatures.get_mut(index) {
                    *mask |= 1 << at;
                }
            }
        }
        Self { search: Search::new(&texts), signatures }
    }

    /// Where the first needle stands.
    pub(super) fn first(&self, bytes: &[u8]) -> Option<usize> {
        self.search.first(bytes)
    }

    /// The signatures whose needles stand in the line, as bits.
    pub(super) fn signatures(&self, line: &[u8]) -> u64 {
        let mask = |pattern: usize| self.signatures.get(pattern).copied().unwrap_or(0);
        match &self.search {
            Search::Packed(search) => {
                search.find_iter(line).fold(0, |all, found| all | mask(found.pattern().as_usize()))
            }
            Search::Automaton(search) => {
                search.find_iter(line).fold(0, |all, found| all | mask(found.pattern().as_usize()))
            }
            Search::Everything => u64::MAX,
        }
    }
}

/// The next needle and the next terminal code of a block (a code could hide a needle), each searched for once.
/// Places count from the block's end, so that they stay as its front is read.
pub(super) struct Marks {
    needle: Option<usize>,
    escape: Option<usize>,
}

impl Marks {
    /// Those of `block`.
    pub(super) fn new(needles: &Needles, block: &[u8]) -> Self {
        let from_end = |at: usize| block.len() - at;
        Self { needle: needles.first(block).map(from_end), escape: memchr(ESCAPE, block).map(from_end) }
    }

    /// Where the next one stands in `block`, what is left of the block.
    pub(super) fn next(&mut self, needles: &Needles, block: &[u8]) -> Option<usize> {
        let length = block.len();
        if self.needle.is_some_and(|from_end| from_end > length) {
            self.needle = needles.first(block).map(|at| length - at);
        }
        if self.escape.is_some_and(|from_end| from_end > length) {
            self.escape = memchr(ESCAPE, block).map(|at| length - at);
        }
        self.needle.max(self.escape).map(|from_end| length - from_end)
    }
}

impl Search {
    fn new(texts: &[&str]) -> Self {
        // More needles than the crate thinks good; on logs it is still several times as fast as an automaton.
        let mut config = packed::Config::new();
        config.match_kind(packed::MatchKind::LeftmostFirst).heuristic_pattern_limits(false);
        if let Some(searcher) = config.builder().extend(texts).build() {
            return Self::Packed(searcher);
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts);
        automaton.map_or(Self::Everything, Self::Automaton)
    }

    fn first(&self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Packed(search) => search.find(bytes).map(|found| found.start()),
            Self::Automaton(search) => search.find(bytes).map(|found| found.start()),
            Self::Everything => (!bytes.is_empty()).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_fit_into_a_word_and_no_needle_hides_another() {
        assert!(SIGNATURES.len() <= 64);
        let all: Vec<&str> = SIGNATURES.iter().flat_map(|signature| signature.needles).copied().collect();
        for needle in &all {
            assert!(needle.len() >= 4, "{needle}");
            // Of overlapping needles only one is found, so none may be part of another.
            assert!(all.iter().all(|other| other == needle || !other.contains(needle)), "{needle}");
        }
    }

    #[test]
    fn packed_search_is_available_here() {
        if cfg!(target_arch = "x86_64") {
            assert!(matches!(Needles::all().search, Search::Packed(_)));
        }
    }
}
