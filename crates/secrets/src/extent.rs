//! How far a secret reaches: to its closing quote or bracket, to the end of its list, query, line or word.

use std::ops::Range;

use super::pairs::{Kind, Separator};

/// Where a value begins, and what is before it.
pub(super) struct Place<'a> {
    pub text: &'a str,
    pub name: Range<usize>,
    /// Whether the name stands in quotes of its own, as in JSON.
    pub is_quoted: bool,
    pub separator: Separator,
    pub start: usize,
    pub kind: Kind,
}

/// What the name belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// The word begins with it.
    Word,
    /// `?a=1&b=2`, `#a=1`
    Query,
    /// `a=1;b=2`
    Connection,
    /// `a=1,b=2`, `{a: 1, b: 2}`
    List,
    /// `a=1|b=2`
    Bars,
    /// `host=h password=p`
    Blanks,
    Other,
}

/// Where the value begins, behind its quote, and where it ends.
pub(super) fn value_end(place: &Place<'_>) -> (usize, usize) {
    let (text, start) = (place.text, place.start);
    if let Some((inner, end)) = quoted(text, start, place.kind) {
        return match goes_on(text, end, place) {
            Some(end) => (start, end),
            None => (inner, end),
        };
    }
    let limit = limit(place);
    let is_structure =
        text[start..].starts_with(['[', '{']) && (place.is_quoted || place.separator == Separator::Colon);
    if is_structure {
        return (start, closing(&text[start..limit]).map_or(limit, |end| start + end));
    }
    let value = &text[start..limit];
    let length = match (place.separator, place.is_quoted) {
        (Separator::Tag, _) => value.find('<'),
        (_, true) => value.find(|c: char| c.is_whitespace() || ",}]".contains(c)),
        (Separator::Blank, _) => value.find(char::is_whitespace),
        _ => within_length(place, value),
    };
    let length = length.unwrap_or(value.len());
    (start, start + value[..length].trim_end().len())
}

fn within_length(place: &Place<'_>, value: &str) -> Option<usize> {
    let line = value.find(['\n', '\r']);
    match within(place) {
        Within::Query => value.find(|c: char| c.is_whitespace() || "&#\"'<>`".contains(c)),
        Within::Connection => {
            // ODBC takes what has semicolons in braces.
            let inner = value.strip_prefix('{').and_then(|value| value.find('}')).unwrap_or(0);
            value[inner..].find([';', '"', '\n']).map(|end| inner + end)
        }
        Within::List => [next_pair(value), closer(place, value), line].into_iter().flatten().min(),
        Within::Bars => value.find('|'),
        Within::Word | Within::Blanks if place.separator == Separator::Colon => line,
        Within::Word if is_connection(place) => value.find(';'),
        Within::Word => None,
        Within::Blanks => {
            let end = value.find(char::is_whitespace).unwrap_or(value.len());
            Some(value[..end].trim_end_matches([';', ',', ')']).len())
        }
        Within::Other => [next_pair(value), line].into_iter().flatten().min(),
    }
}

fn within(place: &Place<'_>) -> Within {
    let before = &place.text[..place.name.start];
    let before = before.strip_suffix(['"', '\'']).map_or(before, |before| before.trim_end_matches('\\'));
    let skipped = before.trim_end_matches([' ', '\t']);
    match (before.chars().next_back(), skipped.chars().next_back()) {
        (None, _) => Within::Word,
        (Some('?' | '&' | '#'), _) => Within::Query,
        (_, Some(';')) => Within::Connection,
        (_, Some(',' | '{' | '(' | '[')) => Within::List,
        (Some('|'), _) => Within::Bars,
        (Some(c), _) if c.is_whitespace() => Within::Blanks,
        (Some('"' | '\''), _) => Within::Word,
        _ => Within::Other,
    }
}

/// `AccountKey=V;EndpointSuffix=x`: pairs apart by semicolons; a variable of the environment is one value.
fn is_connection(place: &Place<'_>) -> bool {
    let name = &place.text[place.name.clone()];
    let is_variable = !name.bytes().any(|byte| byte.is_ascii_lowercase()) || name.starts_with('-');
    let is_pair = |part: &str| {
        part.split_once('=')
            .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _-".contains(&byte)))
    };
    let mut parts = place.text[place.name.start..].trim_end_matches(';').split(';').skip(1).peekable();
    !is_variable && parts.peek().is_some() && parts.all(is_pair)
}

/// Where `,name=` or `,name:` begins, the next of a list.
fn next_pair(value: &str) -> Option<usize> {
    value.match_indices(',').map(|(at, _)| at).find(|at| {
        let rest = value[at + 1..].trim_start().trim_start_matches(['"', '\'', '\\']);
        let name = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-.".contains(c)).len();
        name > 0 && rest[name..].trim_start_matches(['"', '\'', '\\', ' ']).starts_with(['=', ':'])
    })
}

/// The bracket that closes the one in which the name stands.
fn closer(place: &Place<'_>, value: &str) -> Option<usize> {
    let opened = place.text[..place.name.start].rfind(['{', '(', '['])?;
    let closer = match place.text.as_bytes()[opened] {
        b'{' => '}',
        b'(' => ')',
        _ => ']',
    };
    value.find(closer)
}

/// How far the value can reach at most: to the end of the shell's word, of the quotes round it, of the text.
fn limit(place: &Place<'_>) -> usize {
    let (text, start) = (place.text, place.start);
    if place.kind == Kind::Argument {
        let before = &text[..place.name.start];
        let around = before.chars().next_back().filter(|c| !place.is_quoted && matches!(c, '"' | '\''));
        return around.and_then(|quote| text[start..].find(quote)).map_or(text.len(), |end| start + end);
    }
    match open_quote(&text[..place.name.start]).filter(|_| !place.is_quoted) {
        Some(quote) => closing_quote(text, start, quote, quote == '"').unwrap_or(text.len()),
        None if place.is_quoted => text.len(),
        None => start + shell_word(&text[start..]),
    }
}

/// The quote that is open at the end of a part of a script.
pub(super) fn open_quote(script: &str) -> Option<char> {
    let mut open = None;
    let mut chars = script.chars();
    while let Some(c) = chars.next() {
        match (open, c) {
            (None | Some('"'), '\\') => {
                chars.next();
            }
            (None, '"' | '\'') => open = Some(c),
            (Some(quote), c) if quote == c => open = None,
            _ => {}
        }
    }
    open
}

/// The length of a shell's first word.
pub(super) fn shell_word(script: &str) -> usize {
    let mut open = None;
    let mut chars = script.char_indices();
    while let Some((at, c)) = chars.next() {
        match (open, c) {
            (None | Some('"'), '\\') => {
                chars.next();
            }
            (None, '"' | '\'') => open = Some(c),
            (Some(quote), c) if quote == c => open = None,
            (None, c) if c.is_whitespace() || ";&|<>()".contains(c) => return at,
            _ => {}
        }
    }
    script.len()
}

/// What stands in quotes at `start`: behind the opening one, and before the closing one. In a script the single ones end at
/// the next.
fn quoted(text: &str, start: usize, kind: Kind) -> Option<(usize, usize)> {
    let rest = text[start..].trim_start_matches('\\');
    let escapes = text.len() - start - rest.len();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = start + escapes + 1;
    if escapes > 0 {
        let sign = format!("{}{quote}", "\\".repeat(escapes));
        return Some((inner, text[inner..].find(&sign).map_or(text.len(), |end| inner + end)));
    }
    let escaped = quote == '"' || kind == Kind::Argument;
    Some((inner, closing_quote(text, inner, quote, escaped).unwrap_or(text.len())))
}

fn closing_quote(text: &str, from: usize, quote: char, escaped: bool) -> Option<usize> {
    let mut chars = text[from..].char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && escaped {
            chars.next();
        } else if c == quote {
            return Some(from + at);
        }
    }
    None
}

/// A shell's word goes on behind a closing quote: `'ab'cd`, `'ab'"cd"`.
fn goes_on(text: &str, end: usize, place: &Place<'_>) -> Option<usize> {
    let after = text.get(end + 1..)?;
    let ends =
        after.starts_with(|c: char| c.is_whitespace() || ",;&|<>(){}[]:\\\"".contains(c)) && !after.starts_with("\"'");
    if place.kind == Kind::Argument || place.is_quoted || after.is_empty() || ends {
        return None;
    }
    open_quote(&text[..place.name.start]).is_none().then(|| place.start + shell_word(&text[place.start..]))
}

/// The length of `[…]` or `{…}`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut open) = (0_usize, false);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if open => {
                chars.next();
            }
            '"' => open = !open,
            '[' | '{' if !open => depth += 1,
            ']' | '}' if !open => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}
