//! Percent-encoded text, read as what it stands for, each byte with its place: `token%3DVALUE`.

use std::ops::Range;

/// A text without its escapes.
pub(super) struct Decoded {
    pub text: String,
    /// Where each byte of `text` begins in what was decoded, and the end.
    places: Vec<usize>,
}

impl Decoded {
    /// Where `range` of the text stood.
    pub fn range(&self, range: &Range<usize>) -> Range<usize> {
        self.places[range.start]..self.places[range.end]
    }
}

/// `text` without its escapes, if it has any that are ASCII.
pub(super) fn decode(text: &str) -> Option<Decoded> {
    let mut decoded = Decoded { text: String::with_capacity(text.len()), places: Vec::with_capacity(text.len() + 1) };
    let (mut at, mut escapes) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        let escape =
            text.get(at + 1..at + 3).filter(|_| c == '%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (c, length) = match escape.filter(u8::is_ascii) {
            Some(byte) => (char::from(byte), 3),
            None => (c, c.len_utf8()),
        };
        escapes += usize::from(length == 3 && escape.is_some());
        decoded.text.push(c);
        decoded.places.extend(std::iter::repeat_n(at, c.len_utf8()));
        at += length;
    }
    decoded.places.push(text.len());
    (escapes > 0).then_some(decoded)
}
