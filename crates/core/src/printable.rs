//! Text from outside made fit for a terminal.

/// The text with control characters, and those that turn writing round, shown as `\u{1b}`: it can be printed.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            safe.extend(character.escape_unicode());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Marks of direction, joiners and separators that change how other text is shown.
const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_printable_moves_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}c\u{202e}d é"), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d é");
    }
}
