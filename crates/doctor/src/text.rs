//! Finding words and numbers in messages: sizes with units, integers, and texts whose blanks a terminal moved.

use tonnage_core::units::{GIB, KIB, MIB};

const UNITS: &[(&str, u64)] = &[
    ("bytes", 1),
    ("TiB", GIB * 1024),
    ("GiB", GIB),
    ("MiB", MIB),
    ("KiB", KIB),
    // PyTorch's MPS allocator before 2.7 says GB and means 2^30; the kernel says kB and means 2^10.
    ("GB", GIB),
    ("MB", MIB),
    ("KB", KIB),
    ("kB", KIB),
    ("B", 1),
];

/// The text without blanks: where a terminal broke a line no longer matters.
pub(crate) fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Whether `phrase` stands in `text`.
pub(crate) fn has_phrase(text: &str, phrase: &str) -> bool {
    find_phrase(text, phrase).is_some()
}

/// Where the first `phrase` stands; nothing stands at the beginning.
pub(crate) fn find_phrase(text: &str, phrase: &str) -> Option<usize> {
    if phrase.is_empty() { Some(0) } else { places_of(text, phrase).next() }
}

/// Whether `word` stands in `text` and no letter goes on with it: `verl` in `verl/workers`, not in `overloaded`. Words may be
/// joined by signs, by digits behind, and as `DeepSpeedEngine` is.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let (bytes, letters) = (text.as_bytes(), word.as_bytes());
    let begins = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let is_small = letters.first().is_some_and(u8::is_ascii_lowercase);
        !(is_small && before.is_some_and(u8::is_ascii_alphanumeric))
    };
    let ends = |at: usize| {
        let is_letter = letters.last().is_some_and(u8::is_ascii_alphabetic);
        !(is_letter && bytes.get(at + letters.len()).is_some_and(u8::is_ascii_lowercase))
    };
    places_of(text, word).any(|at| begins(at) && ends(at))
}

/// Every place where `phrase` stands: its rarest byte is looked for. On lines this is several times as fast as searches
/// that prepare themselves first.
pub(crate) fn places_of(text: &str, phrase: &str) -> impl Iterator<Item = usize> {
    let (offset, byte) = rarest(phrase.as_bytes());
    let stands = move |at: usize| {
        let start = at.checked_sub(offset)?;
        text.as_bytes().get(start..)?.starts_with(phrase.as_bytes()).then_some(start)
    };
    memchr::memchr_iter(byte, text.as_bytes()).filter_map(stands)
}

/// Of a phrase's first, middle and last byte the one that logs have least of, and where it stands.
#[inline]
fn rarest(phrase: &[u8]) -> (usize, u8) {
    let mut best = (0, phrase.first().copied().unwrap_or_default());
    for at in [phrase.len() / 2, phrase.len().saturating_sub(1)] {
        let byte = phrase.get(at).copied().unwrap_or_default();
        if COMMONNESS[usize::from(byte)] < COMMONNESS[usize::from(best.1)] {
            best = (at, byte);
        }
    }
    best
}

/// How common a byte is: 0 for those that logs hardly have, 5 for blanks and the letters of every word.
pub(crate) fn commonness_of(byte: u8) -> u8 {
    COMMONNESS[usize::from(byte)]
}

/// How common each byte is in English and in numbers, roughly.
static COMMONNESS: [u8; 256] = commonness();

const fn commonness() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b' ' | b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 5,
            b'l' | b'd' | b'c' | b'u' | b'm' | b'p' | b'0'..=b'9' | b'.' => 4,
            b':' | b'/' | b'_' | b'-' | b',' | b'\'' | b'"' | b'h' | b'g' | b'f' | b'b' => 3,
            b'a'..=b'z' => 2,
            b'A'..=b'Z' => 1,
            _ => 0,
        };
        byte += 1;
    }
    table
}

/// What follows the first `phrase`.
pub(crate) fn text_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    find_phrase(text, phrase).and_then(|at| text.get(at + phrase.len()..))
}

/// What precedes the first `phrase`.
pub(crate) fn text_before<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    find_phrase(text, phrase).and_then(|at| text.get(..at))
}

/// The size that `text` begins with, blanks between number and unit or not: `20.00 MiB`, `14285187448 bytes`.
pub(crate) fn read_size(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(digits)?;
    let unit = rest.trim_start();
    let scale = UNITS.iter().find(|(name, _)| unit.starts_with(name))?.1;
    scaled(number.trim_end_matches('.'), scale)
}

/// The size that `text` ends with.
pub(crate) fn size_at_end(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let (unit, scale) = UNITS.iter().find(|(name, _)| text.ends_with(name))?;
    let number = text.strip_suffix(unit)?.trim_end();
    let bytes = number.as_bytes();
    let mut start = bytes.len();
    let mut fraction = false;
    while start > 0 {
        let digit = bytes[start - 1].is_ascii_digit();
        let point = bytes[start - 1] == b'.' && !fraction && start > 1 && bytes[start - 2].is_ascii_digit();
        if !digit && !point {
            break;
        }
        fraction |= point;
        start -= 1;
    }
    scaled(number.get(start..)?, *scale)
}

/// The size before `phrase`.
pub(crate) fn size_before(text: &str, phrase: &str) -> Option<u64> {
    size_at_end(text_before(text, phrase)?)
}

/// The size after `phrase`.
pub(crate) fn size_after(text: &str, phrase: &str) -> Option<u64> {
    read_size(text_after(text, phrase)?)
}

/// `number` (digits, at most one point) times `scale`, rounded down; exact where floats are not.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    // Nine digits after the point are more than any message has.
    let fraction = fraction.get(..fraction.len().min(9))?;
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let denominator = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u64::try_from(u128::from(part) * u128::from(scale) / denominator).ok()?;
    whole.checked_mul(scale)?.checked_add(part)
}

/// The integer that `text` begins with.
pub(crate) fn read_integer(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The integer after `phrase`.
pub(crate) fn integer_after(text: &str, phrase: &str) -> Option<u64> {
    read_integer(text_after(text, phrase)?)
}

/// The integer, perhaps negative, after `phrase`.
pub(crate) fn signed_after(text: &str, phrase: &str) -> Option<i64> {
    let text = text_after(text, phrase)?.trim_start();
    match text.strip_prefix('-') {
        Some(digits) => i64::try_from(read_integer(digits)?).ok().map(|number| -number),
        None => i64::try_from(read_integer(text)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_messages_write_them() {
        let cases = [
            ("20.00 MiB. GPU 0", Some(20 * MIB)),
            ("0 bytes free", Some(0)),
            ("1.50GiBofwhich", Some(GIB + GIB / 2)),
            ("372.76MiB", Some(390_867_189)),
            ("14285187448 bytes.", Some(14_285_187_448)),
            ("4.5 parsecs", None),
            ("99999999999999999999 GiB", None),
            ("17179869184 GiB", None),
            (". MiB", None),
            ("", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(read_size(text), bytes, "{text}");
        }
    }

    #[test]
    fn sizes_at_the_end_stop_at_a_sentence() {
        let cases = [
            ("isfree.1.05GiB", Some(GIB + 53_687_091)),
            ("(GPU 0; 10.92 GiB ", Some(11_725_260_718)),
            ("which11.00MiB", Some(11 * MIB)),
            ("GiB", None),
            ("x.5GiB", Some(5 * GIB)),
        ];
        for (text, bytes) in cases {
            assert_eq!(size_at_end(text), bytes, "{text}");
        }
    }

    #[test]
    fn phrases_are_found_wherever_their_rarest_byte_stands() {
        let text = "aab XaXab, ab:aXb";
        for phrase in ["aab", "XaX", "ab", "b,", ":", "aXb", "aab XaXab, ab:aXb"] {
            let expected: Vec<usize> = (0..text.len()).filter(|at| text[*at..].starts_with(phrase)).collect();
            assert_eq!(places_of(text, phrase).collect::<Vec<_>>(), expected, "{phrase}");
        }
        assert_eq!((find_phrase("abc", ""), places_of("", "a").count()), (Some(0), 0));
    }

    #[test]
    fn words_end_where_letters_do() {
        let cases = [
            ("/opt/verl/workers", "verl", true),
            ("python -m verl.trainer", "verl", true),
            ("avoid being overloaded", "verl", false),
            ("the last interval", "verl", false),
            ("an array::size of 3", "ray::", false),
            ("ray::Worker", "ray::", true),
            ("DeepSpeedEngine", "DeepSpeed", true),
            ("SFTTrainingArguments", "TrainingArguments", true),
            ("yolov5s.pt", "yolov5", true),
            ("mmdet3d", "mmdet", true),
            ("import tensorflowjs_x", "tensorflow", false),
            ("overloaded verl", "verl", true),
            ("", "verl", false),
        ];
        for (text, word, expected) in cases {
            assert_eq!(has_word(text, word), expected, "{text}");
        }
    }

    #[test]
    fn integers_may_be_negative() {
        assert_eq!(signed_after("exitcode  : -9 (pid", "exitcode  :"), Some(-9));
        assert_eq!(signed_after("exitcode: 1)", "exitcode:"), Some(1));
        assert_eq!(integer_after("local_rank: x", "local_rank:"), None);
    }
}
