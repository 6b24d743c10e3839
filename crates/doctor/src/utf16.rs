//! [`Utf16`]: logs of two bytes a letter, as PowerShell's `>` writes them, read as UTF-8.

use std::borrow::Cow;

/// What the first two bytes of a log say of it.
#[derive(Default)]
enum Encoding {
    #[default]
    NotKnown,
    /// UTF-8, or whatever else ends its lines as ASCII does.
    Bytes,
    /// Whether the lower byte of a pair comes first.
    Pairs { little: bool },
}

/// Reads a log piece by piece.
#[derive(Default)]
pub(crate) struct Utf16 {
    encoding: Encoding,
    /// The first byte of the log, or of a pair, whose second comes with the next piece.
    odd: Option<u8>,
    /// The first half of a letter beyond 2^16.
    high: Option<u16>,
}

impl Utf16 {
    /// The next bytes as UTF-8; what is no text is `U+FFFD`.
    pub(crate) fn read<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        if matches!(self.encoding, Encoding::Bytes) {
            return Cow::Borrowed(bytes);
        }
        let held = self.odd.take();
        let all: Cow<'b, [u8]> = match held {
            Some(first) => Cow::Owned([&[first], bytes].concat()),
            None => Cow::Borrowed(bytes),
        };
        match (&self.encoding, all.as_ref()) {
            (Encoding::NotKnown, [] | [_]) => {
                self.odd = all.first().copied();
                Cow::Borrowed(&[])
            }
            (Encoding::NotKnown, [0xff, 0xfe, rest @ ..]) => {
                self.encoding = Encoding::Pairs { little: true };
                Cow::Owned(self.decode(rest, true))
            }
            (Encoding::NotKnown, [0xfe, 0xff, rest @ ..]) => {
                self.encoding = Encoding::Pairs { little: false };
                Cow::Owned(self.decode(rest, false))
            }
            (Encoding::Pairs { little }, pairs) => {
                let little = *little;
                Cow::Owned(self.decode(pairs, little))
            }
            (Encoding::NotKnown | Encoding::Bytes, _) => {
                self.encoding = Encoding::Bytes;
                all
            }
        }
    }

    /// What is left at the log's end.
    pub(crate) fn finish(&mut self) -> Option<u8> {
        self.odd.take().filter(|_| matches!(self.encoding, Encoding::NotKnown))
    }

    fn decode(&mut self, bytes: &[u8], little: bool) -> Vec<u8> {
        let (pairs, odd) = bytes.as_chunks::<2>();
        self.odd = odd.first().copied();
        let unit = |pair: &[u8; 2]| if little { u16::from_le_bytes(*pair) } else { u16::from_be_bytes(*pair) };
        let mut units: Vec<u16> = self.high.take().into_iter().chain(pairs.iter().map(unit)).collect();
        // Its second half comes with the next piece.
        self.high = units.pop_if(|last| (0xd800..0xdc00).contains(last));
        let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER));
        letters.collect::<String>().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str, little: bool) -> Vec<u8> {
        let of = |unit: u16| if little { unit.to_le_bytes() } else { unit.to_be_bytes() };
        format!("\u{feff}{text}").encode_utf16().flat_map(of).collect()
    }

    fn read(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut utf16 = Utf16::default();
        let mut found: Vec<u8> = bytes.chunks(piece).flat_map(|piece| utf16.read(piece).into_owned()).collect();
        found.extend(utf16.finish());
        found
    }

    #[test]
    fn pieces_of_any_length_make_the_same_text() {
        let text = "erste Zeile\r\nValueError: größer als 𝛼\n";
        for piece in 1..9 {
            for bytes in [pairs(text, true), pairs(text, false), text.as_bytes().to_vec()] {
                assert_eq!(read(&bytes, piece), text.as_bytes(), "{piece}");
            }
            for bytes in [&b""[..], b"\xff", b"\xffa", b"a", b"\xfe\xfe\xff"] {
                assert_eq!(read(bytes, piece), bytes, "{piece}");
            }
        }
    }

    #[test]
    fn halves_of_letters_are_no_text() {
        assert_eq!(read(&[0xff, 0xfe, 0x00, 0xdc, b'a', 0x00], 2), "\u{fffd}a".as_bytes());
    }
}
