//! [`Lines`]: the lines of a file, each of bounded length.

use std::io::BufRead;

/// No line of metrics is longer; what is, is passed over.
pub const LONGEST_LINE: usize = 1 << 20;

/// Lines, one at a time, in one buffer.
pub struct Lines<'a> {
    input: &'a mut dyn BufRead,
    buffer: Vec<u8>,
    number: usize,
}

/// A line, or why it is none.
pub enum Line<'a> {
    /// Its number from 1, and its bytes without their end.
    Bytes(usize, &'a [u8]),
    /// It is longer than [`LONGEST_LINE`].
    TooLong(usize),
}

impl<'a> Lines<'a> {
    /// Of `input`.
    pub fn new(input: &'a mut dyn BufRead) -> Self {
        Self { input, buffer: Vec::new(), number: 0 }
    }

    /// The next one that is not empty.
    ///
    /// # Errors
    /// When the file cannot be read on.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, String> {
        loop {
            self.buffer.clear();
            let is_long = match self.fill_buffer()? {
                Some(is_long) => is_long,
                None => return Ok(None),
            };
            self.number += 1;
            if is_long {
                return Ok(Some(Line::TooLong(self.number)));
            }
            if self.buffer.iter().any(|byte| !byte.is_ascii_whitespace()) {
                break;
            }
        }
        Ok(Some(Line::Bytes(self.number, &self.buffer)))
    }

    /// Reads to the end of a line; whether it was too long. `None` at the end of the file.
    fn fill_buffer(&mut self) -> Result<Option<bool>, String> {
        let (mut is_long, mut is_any) = (false, false);
        loop {
            let available = self.input.fill_buf().map_err(|error| error.to_string())?;
            if available.is_empty() {
                return Ok(is_any.then_some(is_long));
            }
            is_any = true;
            let end = memchr::memchr(b'\n', available);
            let part = &available[..end.unwrap_or(available.len())];
            if self.buffer.len() + part.len() > LONGEST_LINE {
                is_long = true;
            } else if !is_long {
                self.buffer.extend_from_slice(part);
            }
            let used = end.map_or(available.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                if self.buffer.last() == Some(&b'\r') {
                    self.buffer.pop();
                }
                return Ok(Some(is_long));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_bounded() {
        let text = format!("a\r\n\n{}\nb", "x".repeat(LONGEST_LINE + 1));
        let mut input = text.as_bytes();
        let mut lines = Lines::new(&mut input);
        assert!(matches!(lines.next(), Ok(Some(Line::Bytes(1, b"a")))));
        assert!(matches!(lines.next(), Ok(Some(Line::TooLong(3)))));
        assert!(matches!(lines.next(), Ok(Some(Line::Bytes(4, b"b")))));
        assert!(matches!(lines.next(), Ok(None)));
    }
}
