//! The prefilter: one search for every needle of every signature, and which signatures a line is worth showing to.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind, packed};
use memchr::{memchr, memchr_iter, memrchr};

use super::signature::SIGNATURES;

/// All needles. A line without any is never looked at.
pub(super) struct Needles {
    search: Search,
    /// Bit `i`: signature `i` has this needle.
    signatures: Vec<u64>,
    /// One of them.
    any: &'static str,
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
        let mut texts: Vec<&'static str> = Vec::new();
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
        Self { search: Search::new(&texts), signatures, any: texts.first().copied().unwrap_or_default() }
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

/// What is left to read of a block of whole lines, with and without the colours in which a needle could hide.
pub(super) struct Block<'a> {
    raw: &'a [u8],
    /// The same lines without colours; empty where they have none.
    clean: Vec<u8>,
    /// How far `clean` is read.
    at: usize,
}

/// Colour codes are shorter.
const LONGEST_COLOUR: usize = 32;

impl<'a> Block<'a> {
    /// Of `raw`, in which no line is longer than `longest`; where one is, every line is a candidate.
    pub(super) fn new(raw: &'a [u8], longest: usize, needles: &Needles) -> Self {
        let clean = if memchr(ESCAPE, raw).is_some() { without_colours(raw, longest, needles) } else { Vec::new() };
        Self { raw, clean, at: 0 }
    }

    /// Goes to the next line that has a needle, and counts those passed over; false where there is none.
    pub(super) fn skip_to_candidate(&mut self, needles: &Needles, lines: &mut u64) -> bool {
        let seen = if self.clean.is_empty() { self.raw } else { self.clean.get(self.at..).unwrap_or_default() };
        let candidate = needles.first(seen);
        let passed = seen.get(..candidate.unwrap_or(seen.len())).unwrap_or_default();
        let start = memrchr(b'\n', passed).map_or(0, |end| end + 1);
        let count = memchr_iter(b'\n', passed).count();
        *lines += count as u64;
        if self.clean.is_empty() {
            self.raw = self.raw.get(start..).unwrap_or_default();
        } else if candidate.is_some() {
            self.at += start;
            let end = count.checked_sub(1).and_then(|last| memchr_iter(b'\n', self.raw).nth(last));
            self.raw = end.and_then(|end| self.raw.get(end + 1..)).unwrap_or(self.raw);
        }
        candidate.is_some()
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> Option<&'a [u8]> {
        let (line, rest) = next_line(self.raw)?;
        self.raw = rest;
        if !self.clean.is_empty() {
            let left = self.clean.get(self.at..).unwrap_or_default();
            self.at += memchr(b'\n', left).map_or(left.len(), |end| end + 1);
        }
        Some(line)
    }
}

fn next_line(block: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b'\n', block).unwrap_or(block.len());
    let rest = block.get(end + 1..).unwrap_or_default();
    block.get(..end).filter(|_| !block.is_empty()).map(|line| (line, rest))
}

/// The block without colour codes, line for line. A line with another terminal code is made a candidate.
fn without_colours(raw: &[u8], longest: usize, needles: &Needles) -> Vec<u8> {
    let mut clean = Vec::with_capacity(raw.len());
    let mut last = 0;
    let too_long = memchr_iter(b'\n', raw).any(|end| end - std::mem::replace(&mut last, end) > longest);
    let mut rest = raw;
    while let Some(at) = memchr(ESCAPE, rest) {
        clean.extend_from_slice(rest.get(..at).unwrap_or_default());
        let code = rest.get(at..).unwrap_or_default();
        let end = colour_length(code).unwrap_or_else(|| {
            clean.extend_from_slice(needles.any.as_bytes());
            1
        });
        rest = code.get(end..).unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    if too_long { every_line_marked(raw, needles) } else { clean }
}

/// A candidate for every line.
fn every_line_marked(raw: &[u8], needles: &Needles) -> Vec<u8> {
    let lines = memchr_iter(b'\n', raw).count() + 1;
    format!("{}\n", needles.any).repeat(lines).into_bytes()
}

/// How long a code is that begins with `ESC [` and ends as ECMA-48 says, on the same line.
fn colour_length(code: &[u8]) -> Option<usize> {
    let parameters = code.strip_prefix(b"\x1b[")?;
    let end = parameters.iter().take(LONGEST_COLOUR).position(|byte| !(0x20..=0x3f).contains(byte))?;
    parameters.get(end).filter(|last| (0x40..=0x7e).contains(*last)).map(|_| end + 3)
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
