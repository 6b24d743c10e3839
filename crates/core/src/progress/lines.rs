//! Lines of a stream that comes in pieces. A carriage return ends a line too: bars are drawn with it.

/// Longer lines are read in part: nothing that counts steps is as long.
const LONGEST: usize = 4 << 10;
/// Of a piece, only the end is read line by line: who writes this much at once says where he is in the last of it.
const READ: usize = 16 << 10;

/// Whole lines out of pieces.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// Tells the lines that `piece` completes.
    pub fn feed(&mut self, piece: &[u8], mut each: impl FnMut(&str)) {
        let Some(first) = piece.iter().position(|byte| is_end(*byte)) else { return self.keep_part(piece) };
        self.keep_part(&piece[..first]);
        let line = std::mem::take(&mut self.pending);
        each(&String::from_utf8_lossy(&line));
        let rest = &piece[first + 1..];
        // What is left out begins in the middle of a line, which is not whole.
        let skipped = rest.len().saturating_sub(READ);
        let mut parts = rest[skipped..].split(|byte| is_end(*byte)).skip(usize::from(skipped > 0)).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                self.keep_part(part);
            } else if !part.is_empty() {
                each(&String::from_utf8_lossy(&part[..part.len().min(LONGEST)]));
            }
        }
    }

    /// The last line, which has no end yet; whole where nothing more will come.
    pub fn rest(&self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }

    fn keep_part(&mut self, part: &[u8]) {
        let room = LONGEST.saturating_sub(self.pending.len());
        self.pending.extend_from_slice(&part[..part.len().min(room)]);
    }
}

const fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// A line without the escape sequences that colour it (ECMA-48: `ESC [`, parameters, a letter).
pub(super) fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let end = after.find(|c: char| ('@'..='~').contains(&c)).map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_same_lines() {
        let text = "step 1\nstep 123/500 loss 1\r\n\r 10%|#| 1/10\r 20%|#| 2/10\nend";
        let whole: Vec<String> = text.split(['\n', '\r']).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        for size in 1..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.feed(piece, |line| found.push(line.to_owned()));
            }
            found.retain(|line| !line.is_empty());
            found.push(lines.rest());
            assert_eq!(found, whole, "pieces of {size}");
        }
    }

    #[test]
    fn much_without_an_end_is_bounded() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.feed(&[b'x'; 64 << 10], |_| panic!("no line has ended"));
        }
        assert_eq!(lines.rest().len(), LONGEST);
        let mut found = Vec::new();
        let many: String = (0..100_000).map(|number| format!("line {number}\n")).collect();
        lines.feed(many.as_bytes(), |line| found.push(line.to_owned()));
        assert_eq!(found.last().map(String::as_str), Some("line 99999"));
        assert!(found.iter().skip(1).all(|line| line.starts_with("line ")), "{:?}", &found[..3]);
    }
}
