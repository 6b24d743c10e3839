//! The prefilter: one search for every needle of every signature, a second for what must stand beside a needle that is
//! common, and which signatures a line is worth showing to.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, Input, MatchKind, packed};
use memchr::{memchr, memrchr};

use crate::mark::MARKS;
use crate::signature::SIGNATURES;
use crate::windows::{WINDOW, Windows};

/// Stands in a cleaned block where a line must be read whatever it says; no cleaned line has it by itself.
pub(crate) const MARK: &[u8; 4] = b"\x1b\x1b\x1b\x1b";

/// Texts that vectors find in one pass.
const FEW: usize = 32;

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
    also: Option<Also>,
}

/// What stands in a line beside a needle: a text that follows it at once, or one of several anywhere.
struct Also {
    behind: Vec<&'static [u8]>,
    anywhere: Option<Search>,
}

/// Stands before a text that follows its needle at once.
const BEHIND: char = '\u{2026}';

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

/// A search for several texts, with their numbers.
struct Search {
    numbers: Vec<usize>,
    with: Machine,
}

/// Long texts by their windows; few and short ones with vector instructions where there are any.
enum Machine {
    Windows(Windows),
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
    /// Texts that no search can be made of: they are everywhere.
    Everything,
}

/// The needles of [`SIGNATURES`], made once.
impl Default for &'static Needles {
    fn default() -> Self {
        static ALL: OnceLock<Needles> = OnceLock::new();
        ALL.get_or_init(Needles::new)
    }
}

impl Needles {
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
            let end = memchr(b'\n', here).map_or(lines.len(), |end| at + end + 1);
            if also.is_behind(lines.get(at + length..end).unwrap_or_default()) {
                return Some(at);
            }
            let start = memrchr(b'\n', lines.get(..at)?).map_or(0, |end| end + 1);
            if also.stands_in(lines.get(start..end)?) {
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
        let also = || having.iter().flat_map(|(_, also)| *also).copied();
        let always = having.iter().any(|(_, also)| also.is_empty());
        Self { length: text.len(), signatures, also: (!always).then(|| Also::new(also())) }
    }
}

impl Also {
    fn new(texts: impl Iterator<Item = &'static str>) -> Self {
        let (mut behind, mut anywhere) = (Vec::new(), Vec::new());
        for text in texts {
            match text.strip_prefix(BEHIND) {
                Some(text) => behind.push(text.as_bytes()),
                None => anywhere.push(text.as_bytes()),
            }
        }
        let anywhere = (!anywhere.is_empty()).then(|| Search::new((0..).zip(anywhere).collect()));
        Self { behind, anywhere }
    }

    /// Whether what follows a needle up to the line's end begins so, or is cut within it.
    fn is_behind(&self, rest: &[u8]) -> bool {
        let cut = rest.strip_suffix(b"\n").map(|rest| rest.strip_suffix(b"\r").unwrap_or(rest));
        let cut = cut.filter(|rest| !rest.is_empty());
        self.behind.iter().any(|text| rest.starts_with(text) || cut.is_some_and(|rest| text.starts_with(rest)))
    }

    fn stands_in(&self, line: &[u8]) -> bool {
        self.anywhere.as_ref().is_some_and(|search| search.find(line, 0).is_some())
    }
}

impl Search {
    /// One for the long texts and one for the others, `first` being the number of the first text.
    fn several(first: usize, texts: &[&'static [u8]]) -> Vec<Self> {
        let numbered = (first..).zip(texts.iter().copied());
        let (long, short): (Vec<_>, Vec<_>) = numbered.partition(|(_, text)| text.len() >= WINDOW);
        [long, short].into_iter().filter(|texts| !texts.is_empty()).map(Self::new).collect()
    }

    fn new(numbered: Vec<(usize, &[u8])>) -> Self {
        let (numbers, texts): (Vec<usize>, Vec<&[u8]>) = numbered.into_iter().unzip();
        // Of a few texts vectors find more in a step.
        let few = texts.len() <= FEW;
        if let Some(windows) = Windows::new(&texts).filter(|_| !few) {
            return Self { numbers, with: Machine::Windows(windows) };
        }
        let mut config = packed::Config::new();
        config.match_kind(packed::MatchKind::LeftmostFirst).heuristic_pattern_limits(false);
        let packed = config.builder().extend(&texts).build().map(Machine::Packed);
        let automaton = || AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(&texts);
        let with = packed.unwrap_or_else(|| automaton().map_or(Machine::Everything, Machine::Automaton));
        Self { numbers, with }
    }

    /// The first of the texts from a place on.
    fn find(&self, bytes: &[u8], from: usize) -> Option<Hit> {
        if from >= bytes.len() {
            return None;
        }
        let found = match &self.with {
            Machine::Windows(search) => {
                let (text, at) = search.find(bytes, from)?;
                return Some(Hit { needle: *self.numbers.get(text)?, at });
            }
            Machine::Packed(search) => search.find_in(bytes, (from..bytes.len()).into()),
            Machine::Automaton(search) => search.find(Input::new(bytes).range(from..)),
            Machine::Everything => return Some(Hit { needle: usize::MAX, at: from }),
        }?;
        Some(Hit { needle: *self.numbers.get(found.pattern().as_usize())?, at: found.start() })
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
    fn fast_searches_are_available_here() {
        if cfg!(target_arch = "x86_64") {
            let fast = |search: &Search| matches!(search.with, Machine::Packed(_) | Machine::Windows(_));
            assert!(<&Needles>::default().searches.iter().all(fast));
        }
    }

    #[test]
    fn a_common_needle_alone_is_no_candidate() {
        let candidate =
            |lines: &str| <&Needles>::default().candidate(lines.as_bytes(), 0, &mut Ahead::default(), false);
        assert_eq!(candidate("if you run out of memory, lower it\nno CUDA error: all is well\n"), None);
        assert_eq!(candidate("out of memory\nCUDA error: out of memory\n"), Some(27));
        // What follows it may be cut by the line's end, as terminals do.
        assert_eq!(candidate("in \"CUDA out of memory. Tried to allocate\": f()\n"), None);
        for cut in ["", " ", " Tri", " Tried to allocate", " Tried to allocate 2.00 GiB. GPU 0 has a total"] {
            assert_eq!(candidate(&format!("x: CUDA out of memory.{cut}\n")), Some(9), "{cut}");
        }
    }
}
