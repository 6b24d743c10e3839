//! [`Texts`]: the names of a recording, each kept once. A name may be said of a million allocations, and be long.

use std::collections::HashSet;
use std::sync::Arc;

use crate::printable::printable;

/// Of each that is longer, the beginning is kept: names are printed, and templates of C++ have no end.
const MOST_BYTES: usize = 512;
/// More text than this names nothing.
const MOST_BYTES_OF_ALL: usize = 64 << 20;

/// Names that were said before.
#[derive(Default)]
pub(super) struct Texts {
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// The name, fit to be printed.
    ///
    /// # Errors
    /// When all names together are too long.
    pub fn keep_text(&mut self, text: &str) -> Result<Arc<str>, String> {
        let text = beginning_of(text);
        if let Some(known) = self.known.get(text) {
            return Ok(Arc::clone(known));
        }
        let name = printable(text);
        if let Some(known) = self.known.get(name.as_str()) {
            return Ok(Arc::clone(known));
        }
        self.bytes += name.len();
        if self.bytes > MOST_BYTES_OF_ALL {
            return Err(format!("the names come to more than {} MiB; record fewer events", MOST_BYTES_OF_ALL >> 20));
        }
        let name: Arc<str> = name.into();
        self.known.insert(Arc::clone(&name));
        Ok(name)
    }
}

/// As much of a text as is kept.
pub(super) fn beginning_of(text: &str) -> &str {
    let end = (0..=text.len().min(MOST_BYTES)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_not_whole() {
        let mut texts = Texts::default();
        let first = texts.keep_text("mm\u{7}").unwrap();
        assert_eq!((&*first, Arc::ptr_eq(&first, &texts.keep_text("mm\u{7}").unwrap())), ("mm\\u{7}", true));
        let long = format!("x{}", "é".repeat(MOST_BYTES));
        assert_eq!(texts.keep_text(&long).unwrap().len(), MOST_BYTES - 1);
    }

    #[test]
    fn all_names_together_are_bounded() {
        let mut texts = Texts::default();
        let name = |number: usize| format!("{number:0512}");
        let kept = (0..).take_while(|number| texts.keep_text(&name(*number)).is_ok()).count();
        assert_eq!(kept * MOST_BYTES, MOST_BYTES_OF_ALL);
    }
}
