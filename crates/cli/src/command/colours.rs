//! What a command wrote, for a terminal: colours and lines stay, what would move the cursor, set titles or ring is left out.

/// Longer parameters are no colour's.
const MOST_PARAMETERS: usize = 64;
const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// Where the reader of a stream is; sequences may lie across two reads.
#[derive(Debug, Default)]
pub(super) struct Colours {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// After an escape.
    Escape,
    /// After `ESC [`, with its parameters.
    Control(Vec<u8>),
    /// In a title, a link or another string for the terminal.
    Words,
    /// In one, after an escape.
    WordsEnd,
}

impl Colours {
    /// `bytes` without sequences other than colours.
    pub fn only(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.state = std::mem::take(&mut self.state).after(*byte, &mut kept);
        }
        kept
    }
}

impl State {
    fn after(self, byte: u8, kept: &mut Vec<u8>) -> Self {
        match (self, byte) {
            // A string without an end must not take the rest of the log.
            (_, b'\n') => {
                kept.push(byte);
                Self::Text
            }
            (Self::Words, ESCAPE) => Self::WordsEnd,
            (_, ESCAPE) => Self::Escape,
            (Self::Text, b'\r' | b'\t' | 0x20..=0x7e | 0x80..) => {
                kept.push(byte);
                Self::Text
            }
            (Self::Escape, b'[') => Self::Control(Vec::new()),
            (Self::Escape, b']' | b'P' | b'X' | b'^' | b'_') => Self::Words,
            (Self::Escape, 0x20..=0x2f) => Self::Escape,
            (Self::Control(mut parameters), 0x20..=0x3f) if parameters.len() < MOST_PARAMETERS => {
                parameters.push(byte);
                Self::Control(parameters)
            }
            (Self::Control(parameters), b'm') => {
                kept.extend([ESCAPE, b'[']);
                kept.extend(parameters);
                kept.push(byte);
                Self::Text
            }
            (Self::Words, BELL) | (Self::WordsEnd, b'\\') => Self::Text,
            (Self::Words | Self::WordsEnd, _) => Self::Words,
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Colours;

    #[test]
    fn colours_stay_and_nothing_else() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"\x1b[1;31mred\x1b[0m\r\n", b"\x1b[1;31mred\x1b[0m\r\n"),
            (b"a\x1b[2J\x1b[1;1Hb\x1b[Ac", b"abc"),
            (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", b"textlink"),
            (b"\x1b(Bx\x07\x08y\x1bcz", b"xyz"),
            (b"\x1b]0;no end\nnext", b"\nnext"),
            ("12%|\u{2588}| \u{e9}".as_bytes(), "12%|\u{2588}| \u{e9}".as_bytes()),
        ];
        for (written, wanted) in cases {
            assert_eq!(Colours::default().only(written), wanted, "{}", String::from_utf8_lossy(written));
            let mut apart = Colours::default();
            let kept: Vec<u8> = written.iter().flat_map(|byte| apart.only(&[*byte])).collect();
            assert_eq!(kept, wanted);
        }
    }
}
