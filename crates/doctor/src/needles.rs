//! The prefilter: one search for every needle of every signature, a second for what must stand beside a needle that is
//! common, and which signatures a line is worth showing to.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind, packed};
use memchr::{memchr, memrchr};

use crate::mark::MARKS;
use crate::signature::SIGNATURES;

/// Stands in a cleaned block where a line must be read whatever it says; no cleaned line has it by itself.
pub(crate) const MARK: &[u8; 4] = b"\x1b\x1b\x1b\x1b";

/// Needles of one search: with more, its vectors find too much that is none.
const MOST_TOGETHER: usize = 50;

/// All needles. A line without any is never looked at.
pub(crate) struct Needles {
    searches: Vec<Search>,
    /// How many of the searches matter before anything was found.
    at_first: usize,
    needles: Vec<Needle>,
}

/// A text that a message has.
struct Needle {
    length: usize,
    /// Bit `i`: signature `i` has this needle.
    signatures: u128,
    /// What else its lines have; `None` where a signature asks for nothing else.
    also: Option<Search>,
}

/// Where the next needle of each search stands: each search passes over a text once.
#[derive(Default)]
pub(crate) struct Ahead(Vec<Option<Hit>>);

/// Which needle, and where it begins; at the end of everything where there is none.
#[derive(Clone, Copy)]
struct Hit {
    needle: usize,
    at: usize,
}

const NO_HIT: Hit = Hit { needle: usize::MAX, at: usize::MAX };

/// A search for several texts; `first` is the number of the first of them.
struct Search {
    first: usize,
    with: Machine,
}

/// Vector instructions where there are any.
enum Machine {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
    /// Texts that no search can be made of: they are everywhere.
    Everything,
}

impl Needles {
    /// The needles of [`SIGNATURES`], made once.
    pub(crate) fn all() -> &'static Self {
        static ALL: OnceLock<Needles> = OnceLock::new();
        ALL.get_or_init(Self::new)
    }

    fn new() -> Self {
        let mark = Needle { length: MARK.len(), signatures: 0, also: None };
        let texts = sorted(first_texts());
        let later: Vec<&str> = sorted(later_texts()).into_iter().filter(|text| !texts.contains(text)).collect();
        let needle = |text: &&str| Needle::new(text);
        let needles = texts.iter().map(needle).chain([mark]).chain(later.iter().map(needle)).collect();
        let first: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).chain([MARK.as_slice()]).collect();
        let later: Vec<&[u8]> = later.iter().map(|text| text.as_bytes()).collect();
        let mut searches = Search::several(0, &first);
        let at_first = searches.len();
        searches.extend(Search::several(first.len(), &later));
        Self { searches, at_first, needles }
    }

    /// The searches that matter: `found` says that something was found before.
    fn searches(&self, found: bool) -> &[Search] {
        self.searches.get(..if found { self.searches.len() } else { self.at_first }).unwrap_or_default()
    }

    /// A needle of the first line from `from` on that has one with what else its signatures ask for.
    pub(crate) fn candidate(&self, lines: &[u8], mut from: usize, ahead: &mut Ahead, found: bool) -> Option<usize> {
        let searches = self.searches(found);
        loop {
            let Hit { needle, at } = ahead.next(searches, lines, from);
            let here = lines.get(at..)?;
            let Some(Needle { length, also: Some(also), .. }) = self.needles.get(needle) else { return Some(at) };
            let start = memrchr(b'\n', lines.get(..at)?).map_or(0, |end| end + 1);
            let end = memchr(b'\n', here).map_or(lines.len(), |end| at + end + 1);
            if also.find(lines.get(start..end)?, 0).is_some() {
                return Some(at);
            }
            from = at + length;
        }
    }

    /// The signatures whose needles stand between two places of the lines, as bits; `None` where the line must be
    /// cleaned first.
    pub(crate) fn between(
        &self,
        lines: &[u8],
        mut from: usize,
        end: usize,
        ahead: &mut Ahead,
        found: bool,
    ) -> Option<u128> {
        let searches = self.searches(found);
        let mut all = 0;
        loop {
            let hit = ahead.next(searches, lines, from);
            if hit.at >= end {
                return Some(all);
            }
            let needle = self.needles.get(hit.needle).filter(|needle| needle.signatures != 0)?;
            all |= needle.signatures;
            from = hit.at + needle.length;
        }
    }

    /// The signatures whose needles stand in the line, as bits.
    pub(crate) fn signatures(&self, line: &[u8]) -> u128 {
        self.between(line, 0, line.len(), &mut Ahead::default(), true).unwrap_or(u128::MAX)
    }
}

/// The needles' texts of signatures, and of marks that matter from a log's beginning on.
fn first_texts() -> impl Iterator<Item = &'static str> {
    let signatures = SIGNATURES.iter().flat_map(|signature| signature.needles);
    signatures.chain(MARKS.iter().filter(|mark| !mark.kind.is_after()).flat_map(|mark| mark.needles)).copied()
}

/// Those of marks that matter after a finding alone.
fn later_texts() -> impl Iterator<Item = &'static str> {
    MARKS.iter().filter(|mark| mark.kind.is_after()).flat_map(|mark| mark.needles).copied()
}

/// Each once; those that begin alike belong together, for the search looks at beginnings first.
fn sorted(texts: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut texts: Vec<&str> = texts.collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

impl Ahead {
    /// The first needle from `from` on.
    fn next(&mut self, searches: &[Search], bytes: &[u8], from: usize) -> Hit {
        self.0.resize(searches.len(), None);
        let mut first = NO_HIT;
        for (known, search) in self.0.iter_mut().zip(searches) {
            let hit = known.filter(|hit| hit.at >= from).unwrap_or_else(|| search.find(bytes, from).unwrap_or(NO_HIT));
            *known = Some(hit);
            if hit.at < first.at {
                first = hit;
            }
        }
        first
    }
}

impl Needle {
    fn new(text: &str) -> Self {
        let signatures = SIGNATURES.iter().map(|signature| (signature.needles, signature.also));
        let marks = MARKS.iter().map(|mark| (mark.needles, mark.also));
        let having: Vec<(usize, &[&str])> = signatures
            .chain(marks)
            .enumerate()
            .filter(|(_, (needles, _))| needles.contains(&text))
            .map(|(at, (_, also))| (at, also))
            .collect();
        let signatures = having.iter().fold(0, |mask, (at, _)| mask | 1 << at);
        let also: Vec<&[u8]> = having.iter().flat_map(|(_, also)| *also).map(|also| also.as_bytes()).collect();
        let always = having.iter().any(|(_, also)| also.is_empty());
        Self { length: text.len(), signatures, also: (!always).then(|| Search::new(0, &also)) }
    }
}

impl Search {
    /// As many as the texts need, `first` being the number of the first text.
    fn several(first: usize, texts: &[&[u8]]) -> Vec<Self> {
        let together = |(number, texts): (usize, &[&[u8]])| Self::new(first + number * MOST_TOGETHER, texts);
        texts.chunks(MOST_TOGETHER).enumerate().map(together).collect()
    }

    fn new(first: usize, texts: &[&[u8]]) -> Self {
        let mut config = packed::Config::new();
        config.match_kind(packed::MatchKind::LeftmostFirst).heuristic_pattern_limits(false);
        let packed = config.builder().extend(texts).build().map(Machine::Packed);
        let automaton = || AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts);
        let with = packed.unwrap_or_else(|| automaton().map_or(Machine::Everything, Machine::Automaton));
        Self { first, with }
    }

    /// The first of the texts from a place on.
    fn find(&self, bytes: &[u8], from: usize) -> Option<Hit> {
        if from >= bytes.len() {
            return None;
        }
        let found = match &self.with {
            Machine::Packed(search) => search.find_in(bytes, (from..bytes.len()).into()),
            Machine::Automaton(search) => search.find(Input::new(bytes).range(from..)),
            Machine::Everything => return Some(Hit { needle: usize::MAX, at: from }),
        };
        found.map(|found| Hit { needle: self.first + found.pattern().as_usize(), at: found.start() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_fit_into_a_word_and_no_needle_hides_another() {
        assert!(SIGNATURES.len() + MARKS.len() <= 128);
        let all: Vec<&str> = first_texts().chain(later_texts()).collect();
        for needle in &all {
            assert!(needle.len() >= 3, "{needle}");
            // Of overlapping needles only one is found, so none may be part of another.
            assert!(all.iter().all(|other| other == needle || !other.contains(needle)), "{needle}");
        }
    }

    #[test]
    fn packed_search_is_available_here() {
        if cfg!(target_arch = "x86_64") {
            assert!(Needles::all().searches.iter().all(|search| matches!(search.with, Machine::Packed(_))));
        }
    }

    #[test]
    fn a_common_needle_alone_is_no_candidate() {
        let candidate = |lines: &str| Needles::all().candidate(lines.as_bytes(), 0, &mut Ahead::default(), false);
        assert_eq!(candidate("if you run out of memory, lower it\nno CUDA error: all is well\n"), None);
        assert_eq!(candidate("out of memory\nCUDA error: out of memory\n"), Some(27));
    }
}
