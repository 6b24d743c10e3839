//! [`last_raised`]: the exception that a log ends with, where it is none that a signature knows.

use super::line::{Line, without_codes};

/// Lines that launchers and loggers write after a traceback; whatever writes more has gone on.
const MOST_AFTER: usize = 40;

/// The last line of a traceback: the exception and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Its line, from 1.
    pub line: u64,
    /// The line; not yet fit for a terminal, see [`super::printable`].
    pub text: String,
}

/// The exception that ends a log of `lines` lines whose last bytes are `tail`.
pub fn last_raised(tail: &[u8], lines: u64) -> Option<Raised> {
    let raw: Vec<&[u8]> = tail.strip_suffix(b"\n").unwrap_or(tail).split(|byte| *byte == b'\n').collect();
    let texts: Vec<String> = raw.iter().map(|line| Line::new(&without_codes(line)).text).collect();
    let head = texts.iter().rposition(|text| text.ends_with("Traceback (most recent call last):"))?;
    let mut at = head + 1;
    while let Some(text) = texts.get(at) {
        if text.starts_with("File \"") {
            // The line of code below may look like anything.
            at += 2;
        } else if text.is_empty() || text.chars().all(|c| "^~ ".contains(c)) || text.starts_with("[Previous line") {
            at += 1;
        } else {
            break;
        }
    }
    let text = texts.get(at).filter(|text| is_exception(text))?;
    let after = texts.len() - at - 1;
    let line = lines.checked_sub(u64::try_from(after).ok()?)?;
    (after <= MOST_AFTER).then(|| Raised { line, text: text.clone() })
}

/// `ValueError: text`, `KeyboardInterrupt`, `package.Name: text`
fn is_exception(text: &str) -> bool {
    let name = text.split(':').next().unwrap_or_default();
    let is_name = |part: &str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
    name.split('.').all(is_name) && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "step 1\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"t.py\", line 3, in <module>\n\
        [rank0]:     raise ValueError(x)\n[rank0]:           ^^^^^\n[rank0]: my.package.ShapeError: 3 is not 4\nbye\n";

    #[test]
    fn the_last_line_of_a_traceback_is_found() {
        let found = last_raised(LOG.as_bytes(), 107).unwrap();
        assert_eq!((found.line, found.text.as_str()), (106, "my.package.ShapeError: 3 is not 4"));
        assert_eq!(
            last_raised(b"Traceback (most recent call last):\n  File \"a\"\n    f()\nKeyboardInterrupt", 4)
                .unwrap()
                .line,
            4
        );
    }

    #[test]
    fn what_was_gone_past_or_cut_off_is_none() {
        let gone_on = format!("{LOG}{}", "step 2\n".repeat(60));
        let cut_off = "Traceback (most recent call last):\n  File \"a\", line 1\n    f()\n";
        for log in [gone_on.as_str(), cut_off, "step 1\n", "", "Traceback (most recent call last):\n  two words: x\n"] {
            assert_eq!(last_raised(log.as_bytes(), 1000), None, "{log}");
        }
    }
}
