//! What a terminal is shown of texts that others wrote: names of files and models, keys, arguments. The terminal obeys none of it.

use std::borrow::Cow;

/// A word of an error may be as long, then its middle is left out: a key of a hostile file has a hundred thousand letters.
const LONGEST_WORD: usize = 400;
/// What is kept of a longer one, before and behind what is left out.
const KEPT: (usize, usize) = (200, 60);
/// An error may be as long.
const LONGEST: usize = 8000;

/// A text of ours, with our colours; what else a terminal would obey is shown as `\u001b`, which JSON reads too.
pub fn clean_styled(text: &str) -> Cow<'_, str> {
    escape_controls(text, true)
}

/// A text without any sequence, its long words shortened.
pub fn clean_plain(text: &str) -> String {
    let mut short = String::with_capacity(text.len().min(LONGEST));
    for piece in text.split_inclusive([' ', '\n']) {
        let word = piece.trim_end_matches([' ', '\n']);
        let length = word.chars().count();
        if length <= LONGEST_WORD {
            short.push_str(piece);
            continue;
        }
        short.extend(word.chars().take(KEPT.0));
        short.push_str(&format!("…({} more characters)…", length - KEPT.0 - KEPT.1));
        short.extend(word.chars().skip(length - KEPT.1));
        short.push_str(&piece[word.len()..]);
    }
    let length = short.chars().count();
    if length > LONGEST {
        short = short.chars().take(LONGEST).collect::<String>() + &format!("… ({} more characters)", length - LONGEST);
    }
    escape_controls(&short, false).into_owned()
}

fn escape_controls(text: &str, keeps_styles: bool) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(c) = rest.chars().next() {
        let style = if keeps_styles { style_length(rest) } else { 0 };
        if style > 0 {
            shown.push_str(&rest[..style]);
            rest = &rest[style..];
            continue;
        }
        if is_obeyed(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(shown)
}

/// Control characters, and those that turn writing round; the ends of lines and tabs are ours.
fn is_obeyed(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// The length of a colour at the beginning of `text`: `ESC [ 1 ; 31 m`.
fn style_length(text: &str) -> usize {
    let Some(inner) = text.strip_prefix("\u{1b}[") else { return 0 };
    let digits = inner.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if inner[digits..].starts_with('m') { digits + 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_obeyed_but_colours_of_ours() {
        assert_eq!(
            clean_plain("a\u{1b}]0;pwn\u{7}\r\u{9b}2J\u{202e}b\n\tc"),
            "a\\u001b]0;pwn\\u0007\\u000d\\u009b2J\\u202eb\n\tc"
        );
        assert_eq!(clean_plain("\u{1b}[31mred"), "\\u001b[31mred");
        assert_eq!(clean_styled("\u{1b}[1;31mred\u{1b}[0m\u{1b}[2J"), "\u{1b}[1;31mred\u{1b}[0m\\u001b[2J");
        assert!(matches!(clean_styled("as it was: é 中\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_words_are_shortened() {
        let shown = clean_plain(&format!("key `{}` is unknown\nhint", "k".repeat(100_000)));
        assert!(
            shown.len() < 400 && shown.ends_with(" is unknown\nhint") && shown.contains("…(99742 more characters)…"),
            "{shown}"
        );
        assert!(clean_plain(&"word ".repeat(10_000)).len() < LONGEST + 100);
    }
}
