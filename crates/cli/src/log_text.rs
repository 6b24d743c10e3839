//! [`LogText`]: the bytes of a log as the doctor reads them. UTF-16 becomes UTF-8; what is packed or no text is refused.

use crate::failure::Failure;

/// How much of a log tells what it is.
const HEAD: usize = 8 << 10;
/// So many zeros on end are a hole: where a log was emptied while its program went on writing at its old place.
const HOLE: usize = 32;
/// What packed files begin with, and what unpacks them.
const PACKED: &[(&[u8], &str, &str)] = &[
    (b"\x1f\x8b", "compressed with gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "zstdcat"),
    (b"\xfd7zXZ\0", "compressed with xz", "xzcat"),
    (b"BZh", "compressed with bzip2", "bzcat"),
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
];

/// How a log is written.
#[derive(Debug, Default)]
pub enum LogText {
    /// UTF-8, or bytes close to it.
    #[default]
    Plain,
    /// UTF-16, as PowerShell's `>` writes.
    Wide(Wide),
}

/// UTF-16 that is being read.
#[derive(Debug, Default)]
pub struct Wide {
    is_big: bool,
    left: Vec<u8>,
    high: Option<u16>,
}

impl LogText {
    /// What a log is, by its first bytes.
    ///
    /// # Errors
    /// When it is packed or no text: with the way to read it.
    pub fn of_log(name: &str, first: &[u8]) -> Result<Self, Failure> {
        let file = if name == "stdin" { "LOG" } else { name };
        if let Some((_, what, tool)) = PACKED.iter().find(|(magic, _, _)| first.starts_with(magic)) {
            let problem = format!("{name}: it is {what}, and cannot be read as it is");
            return Err(Failure::bad_input(problem).with_hint(format!("`{tool} {file} | tonnage doctor -`")));
        }
        if first.starts_with(b"\xff\xfe") || first.starts_with(b"\xfe\xff") {
            return Ok(Self::Wide(Wide { is_big: first.starts_with(b"\xfe"), ..Wide::default() }));
        }
        let head = first.get(..HEAD).unwrap_or(first);
        let runs = head.chunk_by(|a, b| (*a == 0) == (*b == 0)).filter(|run| run.first() == Some(&0));
        let zeros: usize = runs.map(<[u8]>::len).filter(|length| *length < HOLE).sum();
        if zeros * 10 > head.len() {
            let hint = format!("of UTF-16 without its mark: `iconv -f UTF-16LE -t UTF-8 {file} | tonnage doctor -`");
            return Err(Failure::bad_input(format!("{name}: it is binary, not the text of a log")).with_hint(hint));
        }
        Ok(Self::Plain)
    }
}

impl Wide {
    /// The next bytes as UTF-8; half a character waits for the rest.
    pub fn decode_text(&mut self, bytes: &[u8]) -> String {
        let bytes = [std::mem::take(&mut self.left), bytes.to_vec()].concat();
        let pairs = bytes.chunks_exact(2);
        self.left = pairs.remainder().to_vec();
        let unit = |pair: &[u8]| {
            let pair = [pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0)];
            if self.is_big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
        };
        let mut units: Vec<u16> = self.high.take().into_iter().chain(pairs.map(unit)).collect();
        self.high = units.pop_if(|last| (0xd800..0xdc00).contains(last));
        let text = char::decode_utf16(units).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER));
        text.filter(|character| *character != '\u{feff}').collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_16_is_read_in_any_pieces() {
        for to_bytes in [u16::to_le_bytes as fn(u16) -> [u8; 2], u16::to_be_bytes] {
            let bytes: Vec<u8> = "\u{feff}Killed \u{1f600}\n".encode_utf16().flat_map(to_bytes).collect();
            for size in [1, 3, 64] {
                let Ok(LogText::Wide(mut wide)) = LogText::of_log("x", &bytes) else { panic!("it is UTF-16") };
                let text: String = bytes.chunks(size).map(|piece| wide.decode_text(piece)).collect();
                assert_eq!(text, "Killed \u{1f600}\n", "{size}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_the_way_out() {
        let hint = |first: &[u8]| LogText::of_log("a.log", first).unwrap_err().hint.unwrap();
        assert_eq!(hint(b"\x1f\x8b\x08"), "`zcat a.log | tonnage doctor -`");
        assert_eq!(hint(b"\x28\xb5\x2f\xfd"), "`zstdcat a.log | tonnage doctor -`");
        assert!(hint(b"K\0i\0l\0l\0e\0d\0").contains("iconv"));
        assert!(matches!(LogText::of_log("a.log", b"one \0 in a line of text"), Ok(LogText::Plain)));
        assert!(matches!(LogText::of_log("a.log", b""), Ok(LogText::Plain)));
        let emptied = [&[0; 11_000][..], b"step 1\n"].concat();
        assert!(matches!(LogText::of_log("a.log", &emptied), Ok(LogText::Plain)), "a hole is no binary");
    }
}
