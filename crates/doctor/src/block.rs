//! [`Block`]: whole lines of a log on their way through the prefilter, beside the same lines without colours.

use memchr::{memchr, memchr_iter, memrchr};

use crate::line::{ESCAPE, sequence_length};
use crate::needles::{Ahead, MARK, Needles};

/// A block of whole lines, with and without the terminal codes in which a needle could hide, and how far it is read.
pub(crate) struct Block<'a> {
    raw: &'a [u8],
    raw_at: usize,
    /// The same lines without codes; empty where they have none.
    clean: Vec<u8>,
    clean_at: usize,
    ahead: Ahead,
}

impl<'a> Block<'a> {
    /// Of `raw`, in which no line is longer than `longest`; where one is, every line is a candidate.
    pub(crate) fn new(raw: &'a [u8], longest: usize) -> Self {
        let clean = if memchr(ESCAPE, raw).is_some() { without_codes(raw, longest) } else { Vec::new() };
        Self { raw, raw_at: 0, clean, clean_at: 0, ahead: Ahead::default() }
    }

    /// Goes to the next line that is worth reading, and counts those passed over; false where there is none.
    pub(crate) fn skip_to_candidate(&mut self, needles: &Needles, lines: &mut u64, found: bool) -> bool {
        let (seen, at) =
            if self.clean.is_empty() { (self.raw, self.raw_at) } else { (self.clean.as_slice(), self.clean_at) };
        let candidate = needles.candidate(seen, at, &mut self.ahead, found);
        let passed = seen.get(at..candidate.unwrap_or(seen.len())).unwrap_or_default();
        let start = memrchr(b'\n', passed).map_or(0, |end| end + 1);
        let count = memchr_iter(b'\n', passed).count();
        *lines += count as u64;
        if self.clean.is_empty() {
            self.raw_at += start;
        } else {
            self.clean_at += start;
            let left = self.raw.get(self.raw_at..).unwrap_or_default();
            let end = count.checked_sub(1).and_then(|last| memchr_iter(b'\n', left).nth(last));
            self.raw_at += end.map_or(0, |end| end + 1);
        }
        candidate.is_some()
    }

    /// The lines that were read or passed over.
    pub(crate) fn passed(&self) -> &'a [u8] {
        self.raw.get(..self.raw_at).unwrap_or_default()
    }

    /// The next line, without its end, and the signatures whose needles it has, where they are known.
    pub(crate) fn line(&mut self, needles: &Needles, found: bool) -> Option<(&'a [u8], Option<u128>)> {
        let left = self.raw.get(self.raw_at..).filter(|left| !left.is_empty())?;
        let length = line_length(left);
        let (seen, at) =
            if self.clean.is_empty() { (self.raw, self.raw_at) } else { (self.clean.as_slice(), self.clean_at) };
        let end =
            if self.clean.is_empty() { at + length } else { at + line_length(seen.get(at..).unwrap_or_default()) };
        let signatures = needles.between(seen, at, end, &mut self.ahead, found);
        self.raw_at += length;
        self.clean_at = end;
        Some((left.get(..memchr(b'\n', left).unwrap_or(left.len()))?, signatures))
    }
}

/// With its end.
fn line_length(lines: &[u8]) -> usize {
    memchr(b'\n', lines).map_or(lines.len(), |end| end + 1)
}

/// The block without terminal codes, line for line.
fn without_codes(raw: &[u8], longest: usize) -> Vec<u8> {
    let mut last = 0;
    if memchr_iter(b'\n', raw).any(|end| end - std::mem::replace(&mut last, end) > longest) {
        return every_line_marked(raw);
    }
    let mut clean = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr(ESCAPE, rest) {
        clean.extend_from_slice(rest.get(..at).unwrap_or_default());
        let code = rest.get(at..).unwrap_or_default();
        let end = code_length(code).unwrap_or_else(|| {
            clean.extend_from_slice(MARK);
            1
        });
        rest = code.get(end..).unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    clean
}

/// A candidate for every line.
fn every_line_marked(raw: &[u8]) -> Vec<u8> {
    let lines = memchr_iter(b'\n', raw).count() + 1;
    [MARK.as_slice(), b"\n"].concat().repeat(lines)
}

/// Codes are shorter, links and titles included.
const LONGEST_CODE: usize = 512;

/// How long a code is that ends on its line; `None` where the line must be read by itself.
fn code_length(code: &[u8]) -> Option<usize> {
    let after = code.get(1..code.len().min(LONGEST_CODE)).unwrap_or_default();
    let length = sequence_length(after);
    let is_whole = length < after.len() && memchr(b'\n', after.get(..length).unwrap_or_default()).is_none();
    is_whole.then_some(length + 1)
}
