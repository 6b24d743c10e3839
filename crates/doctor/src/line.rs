//! A line of a log made readable: terminal codes gone, invalid bytes replaced, the launcher's prefix read and removed.

use std::borrow::Cow;
use std::sync::OnceLock;

use memchr::{memchr, memchr_iter, memmem};

use crate::prefix;
use crate::stamp::Stamp;

pub(crate) const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// A line as signatures read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Without terminal codes and prefixes.
    pub(crate) text: String,
    /// The rank that wrote it, where the line says so.
    pub(crate) rank: Option<u32>,
    /// Blanks between the prefixes and the text: how a traceback tells code from what was raised.
    pub(crate) indent: usize,
    /// When it was written, where a prefix says so.
    pub(crate) stamp: Option<Stamp>,
}

impl Line {
    /// Reads bytes without terminal codes and line end.
    pub(crate) fn new(clean: &[u8]) -> Self {
        let text = String::from_utf8_lossy(clean);
        let unpacked = prefix::unpack_line(&text);
        let stripped = prefix::strip_prefixes(unpacked.as_deref().unwrap_or(&text));
        let rank = stripped.rank.or_else(|| prefix::named_rank(stripped.text));
        let is_cut = stripped.text.len() < text.len();
        let stamp = is_cut.then(|| Stamp::of_line(&text)).flatten();
        Self { text: prefix::without_count(stripped.text).to_owned(), rank, indent: stripped.indent, stamp }
    }
}

/// A progress bar (tqdm's rate and the bracket behind it) and what was written behind it on the same line.
pub(crate) fn behind_bar(clean: &[u8]) -> Option<(&[u8], &[u8])> {
    let rate = memchr_iter(b'/', clean).find(|at| {
        let around = clean.get(at.saturating_sub(2)..at + 3).unwrap_or_default();
        around.starts_with(b"it/s") || around.ends_with(b"s/it")
    })?;
    let end = rate + memchr(b']', clean.get(rate..)?)? + 1;
    let (bar, rest) = clean.split_at_checked(end)?;
    rest.iter().any(|byte| !byte.is_ascii_whitespace()).then_some((bar, rest))
}

/// How SLURM's own lines begin: each task's and node's is written at once, and may lack the end of the line before.
const OF_SLURM: &[&str] = &["slurmstepd: error: ", "srun: error: ", "srun: Terminating ", "srun: Job step "];

/// Where SLURM's lines begin in a line without a line's end before them.
pub(crate) fn glued_starts(clean: &[u8]) -> Vec<usize> {
    let begins = |at: &usize| {
        let is_own =
            OF_SLURM.iter().any(|start| clean.get(*at..).is_some_and(|rest| rest.starts_with(start.as_bytes())));
        let before = clean.get(..*at).unwrap_or_default();
        // Behind a blank or a colon stands what a label or a logger's prefix is put before, or talk.
        let is_glued = ![b" ", b"`", b":", b"'", b"\""].iter().any(|end| before.ends_with(*end));
        let follows = OF_SLURM.iter().any(|start| memmem::find(before, start.as_bytes()).is_some());
        is_own && *at > 0 && (is_glued || follows)
    };
    // Most lines have none of the two, and cost no more than the search.
    let found = finders().iter().flat_map(|finder| finder.find_iter(clean)).filter(begins);
    let mut starts: Vec<usize> = found.collect();
    starts.sort_unstable();
    starts
}

/// The pieces of a line between such places.
pub(crate) fn cut_at<'a>(clean: &'a [u8], starts: &[usize]) -> Vec<&'a [u8]> {
    let ends = starts.iter().copied().chain([clean.len()]);
    std::iter::once(0).chain(starts.iter().copied()).zip(ends).filter_map(|(from, to)| clean.get(from..to)).collect()
}

fn finders() -> &'static [memmem::Finder<'static>; 2] {
    static FINDERS: OnceLock<[memmem::Finder<'static>; 2]> = OnceLock::new();
    FINDERS.get_or_init(|| [memmem::Finder::new("slurmstepd: "), memmem::Finder::new("srun: ")])
}

/// The bytes without ANSI escape sequences.
pub(crate) fn without_codes(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(ESCAPE, raw) else { return raw.into() };
    let mut clean = raw.get(..first).unwrap_or_default().to_vec();
    let mut rest = raw.get(first..).unwrap_or_default();
    while let Some(at) = memchr(ESCAPE, rest) {
        clean.extend_from_slice(rest.get(..at).unwrap_or_default());
        let after = rest.get(at + 1..).unwrap_or_default();
        rest = after.get(sequence_length(after)..).unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    clean.into()
}

/// How many bytes after the escape belong to its sequence (ECMA-48).
pub(crate) fn sequence_length(after: &[u8]) -> usize {
    match after.first() {
        Some(b'[') => {
            let end = after.iter().skip(1).position(|byte| !(0x20..=0x3f).contains(byte));
            end.map_or(after.len(), |end| end + 2)
        }
        // Titles and links end with a bell or with another escape.
        Some(b']') => match after.iter().position(|byte| matches!(*byte, BELL | ESCAPE)) {
            Some(end) if after.get(end) == Some(&BELL) => end + 1,
            Some(end) => end + 2,
            None => after.len(),
        },
        Some(_) => 1,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_vanish() {
        let cases: &[(&[u8], &str)] = &[
            (b"\x1b[31mCUDA\x1b[0m out of \x1b[1;4mmemory", "CUDA out of memory"),
            (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
            (b"cut \x1b[38;5", "cut"),
            (b"cut \x1b", "cut"),
            (b"\xff\xfe ok", "\u{fffd}\u{fffd} ok"),
        ];
        for (raw, text) in cases {
            assert_eq!(Line::new(&without_codes(raw)).text, *text);
        }
    }

    #[test]
    fn prefixes_name_ranks() {
        let cases = [
            ("[rank3]: Traceback", Some(3), "Traceback"),
            ("[default0]:[rank0]: RuntimeError: x", Some(0), "RuntimeError: x"),
            ("[2]:text", Some(2), "text"),
            ("[1,7]<stderr>:text", Some(7), "text"),
            ("12: text", Some(12), "text"),
            ("(EngineCore_DP0 pid=6940) ValueError: x", None, "ValueError: x"),
            ("[2025-01-01 10:00:00] text", None, "text"),
            (
                " 50%|## | 2/4 [01:08<1:22, 2.8s/it][rank5]:[E602 x",
                Some(5),
                "50%|## | 2/4 [01:08<1:22, 2.8s/it][rank5]:[E602 x",
            ),
            ("[E321 Proc.cpp:607] [Rank 4] Watchdog", Some(4), "[E321 Proc.cpp:607] [Rank 4] Watchdog"),
            ("[99999999999]: x", None, "[99999999999]: x"),
        ];
        for (raw, rank, text) in cases {
            let line = Line::new(raw.as_bytes());
            assert_eq!((line.text.as_str(), line.rank), (text, rank), "{raw}");
        }
    }
}
