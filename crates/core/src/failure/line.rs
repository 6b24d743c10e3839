//! A line of a log made readable: terminal codes gone, invalid bytes replaced, the launcher's prefix read and removed.

use std::borrow::Cow;

use memchr::memchr;

pub(super) const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// A line as signatures read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Without terminal codes and prefixes.
    pub(super) text: String,
    /// The rank that wrote it, where the line says so.
    pub(super) rank: Option<u32>,
}

impl Line {
    /// Reads bytes without terminal codes and line end.
    pub(super) fn new(clean: &[u8]) -> Self {
        let text = String::from_utf8_lossy(clean);
        let (prefixed, rest) = strip_prefixes(&text);
        let rank = prefixed.or_else(|| named_rank(rest));
        Self { text: rest.to_owned(), rank }
    }

    /// Whether somebody quotes a log here: mail, Markdown, a table, a comment, this program's own evidence.
    pub(super) fn is_quote(&self) -> bool {
        self.text.starts_with(['>', '|', '#', '`']) || self.text.starts_with("\"quoted\":")
    }
}

/// The bytes without ANSI escape sequences.
pub(super) fn without_codes(raw: &[u8]) -> Cow<'_, [u8]> {
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
pub(super) fn sequence_length(after: &[u8]) -> usize {
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

/// Removes what launchers put before lines, and the rank it names: `[rank3]:`, `[default0]:`, `[1,3]<stderr>:`,
/// `3: `, `(EngineCore pid=42)`.
fn strip_prefixes(text: &str) -> (Option<u32>, &str) {
    let mut rank = None;
    let mut rest = text.trim_start();
    for _ in 0..3 {
        let Some((found, after)) = bracketed(rest).or_else(|| labelled(rest)).or_else(|| process(rest)) else { break };
        rank = rank.or(found);
        rest = after.trim_start();
    }
    (rank, rest.trim_end())
}

/// `[rank3]:`, `[default0]:`, `[3]:`, `[1,3]<stderr>:`: a role and a rank (torchrun's `{role}{rank}` and PyTorch's own
/// excepthook), or MPI's job and rank.
fn bracketed(text: &str) -> Option<(Option<u32>, &str)> {
    let (inside, after) = text.strip_prefix('[')?.split_once(']')?;
    let after = after.strip_prefix("<stderr>").or_else(|| after.strip_prefix("<stdout>")).unwrap_or(after);
    let after = after.strip_prefix(':')?;
    let digits = inside.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    let (role, number) = inside.split_at_checked(digits)?;
    let is_role = role.chars().all(|character| character.is_ascii_alphabetic() || "_-,".contains(character))
        || role.strip_suffix(',').is_some_and(|job| job.parse::<u32>().is_ok());
    if !is_role {
        return None;
    }
    Some((Some(number.parse().ok()?), after))
}

/// `srun --label`.
fn labelled(text: &str) -> Option<(Option<u32>, &str)> {
    let (number, after) = text.split_once(": ")?;
    let short = (1..=5).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    short.then(|| (number.parse().ok(), after))
}

/// `(EngineCore_DP0 pid=6940)`: vLLM and Ray.
fn process(text: &str) -> Option<(Option<u32>, &str)> {
    let (inside, after) = text.strip_prefix('(')?.split_once(')')?;
    inside.contains("pid=").then_some((None, after))
}

/// A rank in the middle of a line: after a progress bar, or in the message itself (`[Rank 4] Watchdog`).
fn named_rank(text: &str) -> Option<u32> {
    let text = text.get(super::text::find(text, "ank")?.saturating_sub(2)..).unwrap_or(text);
    let number = |phrase| super::text::integer_after(text, phrase);
    let rank = number("[rank").or_else(|| number("[Rank ")).or_else(|| number(" Rank "))?;
    u32::try_from(rank).ok()
}

/// The text with control characters, and those that turn writing round, shown as `\u{1b}`: it can be printed.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            safe.extend(character.escape_unicode());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Marks of direction, joiners and separators that change how other text is shown.
const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
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
            ("[2025-01-01 10:00:00] text", None, "[2025-01-01 10:00:00] text"),
            (
                " 50%|## | 2/4 [01:08<1:22, 2.8s/it][rank5]:[E602 x",
                Some(5),
                "50%|## | 2/4 [01:08<1:22, 2.8s/it][rank5]:[E602 x",
            ),
            ("[E321 Proc.cpp:607] [Rank 4] Watchdog", Some(4), "[E321 Proc.cpp:607] [Rank 4] Watchdog"),
            ("[99999999999]: x", None, "[99999999999]: x"),
        ];
        for (raw, rank, text) in cases {
            assert_eq!(Line::new(raw.as_bytes()), Line { text: text.to_owned(), rank }, "{raw}");
        }
    }

    #[test]
    fn nothing_printable_moves_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}c\u{202e}d é"), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d é");
    }
}
