//! Values whose name says that they are secrets: `NAME=VALUE`, `name: value`, `"name": "value"`, `--name value`, in scripts,
//! queries, headers, JSON, YAML and connection strings.

use std::ops::Range;

use super::Spot;
use super::extent::{Place, value_end};
use super::names::{is_path, may_be_folder, may_be_number, may_be_secret};

/// What a word is to the program that gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An argument: no shell sees it.
    Argument,
    /// A script for a shell, which expands variables and takes quotes away.
    Script,
}

/// What stands between a name and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    Equals,
    Colon,
    /// Of a flag, or of the word "Bearer".
    Blank,
    /// The end of `<name>`.
    Tag,
}

/// The secrets of a text, and the name of one that follows in the next word.
#[derive(Default)]
pub(super) struct Found {
    pub spots: Vec<Spot>,
    pub pending: Option<String>,
}

/// What stands before a credential in a header.
const SCHEMES: [&str; 8] = ["bearer", "basic", "token", "digest", "negotiate", "apikey", "bot", "aws4-hmac-sha256"];
/// Values that say something about a secret.
const SWITCHES: [&str; 10] = ["true", "false", "none", "null", "yes", "no", "on", "off", "auto", "(hidden)"];

/// The secrets of `text` that are named in it.
pub(super) fn find(text: &str, kind: Kind) -> Found {
    let mut found = Found::default();
    // `"name": "HF_TOKEN", "value": "…"`
    let mut named: Option<String> = None;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(end) = template_end(text, at) {
            at = end;
            continue;
        }
        if !is_name_byte(bytes[at]) {
            at += 1;
            continue;
        }
        let name = at..at + bytes[at..].iter().take_while(|byte| is_name_byte(**byte)).count();
        at = name.end;
        let word = text[name.clone()].to_ascii_lowercase();
        if matches!(word.as_str(), "name" | "key")
            && let Value::At(value) = value_of(text, &name, kind)
            && may_be_secret(&text[value.clone()])
            && !text[value.clone()].contains(char::is_whitespace)
        {
            named = Some(text[value.clone()].to_owned());
            at = value.end;
            continue;
        }
        let called = if word == "value" { named.take() } else { None };
        if called.is_none() && !is_bearer(&word) && !may_be_secret(&text[name.clone()]) {
            continue;
        }
        match value_of(text, &name, kind) {
            Value::At(value) => {
                at = value.end.max(at);
                let called = called.unwrap_or_else(|| text[name].to_owned());
                found.spots.extend(spot(text, called, value, kind));
            }
            Value::InNextWord => found.pending = Some(text[name].to_owned()),
            Value::None => {}
        }
    }
    found
}

/// Whether `value`, a word of its own, is one that a program is given as it stands.
pub(super) fn is_literal(name: &str, value: &str, kind: Kind) -> bool {
    let small = value.len() <= 7 && value.bytes().all(|byte| byte.is_ascii_digit());
    !(value.is_empty()
        || SWITCHES.contains(&value.to_ascii_lowercase().as_str())
        || template_end(value, 0) == Some(value.len())
        || is_reference(value, kind)
        || small && may_be_number(name)
        || may_be_folder(name) && is_path(value))
}

/// The name and the value without the word of its scheme: `Authorization: Basic V`.
fn spot(text: &str, mut name: String, mut value: Range<usize>, kind: Kind) -> Option<Spot> {
    if let Some((scheme, rest)) = text[value.clone()].split_once(char::is_whitespace)
        && SCHEMES.contains(&scheme.to_ascii_lowercase().as_str())
    {
        value.start = value.end - rest.trim_start().len();
        if is_bearer(scheme) {
            name = scheme.to_owned();
        }
    }
    // A shell leaves single quotes as they are.
    let kind = if text[..value.start].ends_with('\'') { Kind::Argument } else { kind };
    is_literal(&name, &text[value.clone()], kind).then_some(Spot { name, range: value })
}

fn is_bearer(name: &str) -> bool {
    name.eq_ignore_ascii_case("bearer")
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
}

/// The end of what will be filled in: `{seed}`, `{{seed}}`, `{secret:NAME}`.
fn template_end(text: &str, at: usize) -> Option<usize> {
    let inner = text.get(at..)?.strip_prefix('{')?;
    let (inner, doubled) = inner.strip_prefix('{').map_or((inner, false), |inner| (inner, true));
    let name = &inner[..inner.find('}')?];
    let is_plain = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
    };
    let is_placeholder = |name: &str| is_plain(name) && !name.contains(|c: char| c.is_ascii_lowercase());
    let known = is_plain(name) || name.strip_prefix("secret:").is_some_and(is_placeholder);
    let end = at + 1 + usize::from(doubled) + name.len() + 1 + usize::from(doubled);
    (known && text.get(..end).is_some_and(|text| !doubled || text.ends_with("}}"))).then_some(end)
}

/// What a shell, or the program itself, looks up: `$HF_TOKEN`, `${HF_TOKEN}`; in a script `$(cat key)` too.
fn is_reference(value: &str, kind: Kind) -> bool {
    let unquoted = value.trim_matches('"');
    let Some(rest) = unquoted.strip_prefix('$') else { return kind == Kind::Script && unquoted.starts_with('`') };
    let name = rest.strip_prefix('{').map_or(Some(rest), |inner| inner.strip_suffix('}'));
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match (kind, name) {
        (Kind::Script, Some(name)) => rest.starts_with('(') || is_name(name),
        (Kind::Script, None) => false,
        // No shell sees an argument: what is written like a variable of the environment is one to the program.
        (Kind::Argument, Some(name)) => {
            let is_loud = is_name(name) && !name.bytes().any(|byte| byte.is_ascii_lowercase());
            is_loud && (name.contains('_') || may_be_secret(name))
        }
        (Kind::Argument, None) => false,
    }
}

enum Value {
    At(Range<usize>),
    InNextWord,
    None,
}

/// The value of the name at `name`.
fn value_of(text: &str, name: &Range<usize>, kind: Kind) -> Value {
    let (after, is_quoted) = after_name(text, name.end);
    let blanks = text[after..].len() - text[after..].trim_start_matches([' ', '\t']).len();
    let at = after + blanks;
    let is_flag = text[name.clone()].starts_with('-') || is_bearer(&text[name.clone()]);
    let (separator, start) = match separator(&text[at..]) {
        Some((separator, length)) => (separator, at + length),
        None if text[name.clone()].starts_with(|c: char| c.is_ascii_alphabetic())
            && text[at..].starts_with('>')
            && text[..name.start].ends_with('<') =>
        {
            (Separator::Tag, at + 1)
        }
        None if is_flag && !is_quoted => (Separator::Blank, at),
        None if text[name.clone()].starts_with('-') && text[at..].starts_with(',') => {
            return in_list(text, name, at + 1, kind);
        }
        None => return Value::None,
    };
    if separator == Separator::Blank && blanks == 0 && at < text.len() {
        return Value::None;
    }
    let start = start + (text[start..].len() - text[start..].trim_start_matches([' ', '\t']).len());
    if start == text.len() {
        let goes_on = separator == Separator::Blank || separator == Separator::Colon && !is_quoted;
        return if goes_on { Value::InNextWord } else { Value::None };
    }
    let is_address = separator == Separator::Colon && text[start..].starts_with("//");
    let is_next_flag = separator == Separator::Blank && text[start..].starts_with('-');
    if is_address || is_next_flag {
        return Value::None;
    }
    let place = Place { text, name: name.clone(), is_quoted, separator, start, kind };
    let (start, end) = value_end(&place);
    if start < end { Value::At(start..end) } else { Value::None }
}

/// The value behind a flag in quotes, the next of a list: `["--token", "V"]`.
fn in_list(text: &str, name: &Range<usize>, comma: usize, kind: Kind) -> Value {
    let start = text.len() - text[comma..].trim_start().len();
    if text[start..].trim_start_matches(['\\', '"', '\'']).starts_with('-') {
        return Value::None;
    }
    let place = Place { text, name: name.clone(), is_quoted: true, separator: Separator::Blank, start, kind };
    let (start, end) = value_end(&place);
    if start < end { Value::At(start..end) } else { Value::None }
}

/// The end of what belongs to a name: `name"`, `name\"`, `name]`; and whether it stood in quotes.
fn after_name(text: &str, end: usize) -> (usize, bool) {
    let rest = text[end..].trim_start_matches('\\');
    let mut at = text.len() - rest.len();
    let is_quoted = rest.starts_with(['"', '\'']);
    if !is_quoted {
        at = end;
    }
    at += usize::from(is_quoted);
    at += usize::from(text[at..].starts_with([']', ')']));
    (at, is_quoted)
}

fn separator(text: &str) -> Option<(Separator, usize)> {
    let signs = [
        ("=>", Separator::Equals),
        (":=", Separator::Equals),
        ("+=", Separator::Equals),
        ("==", Separator::Equals),
        ("=", Separator::Equals),
        (":", Separator::Colon),
    ];
    signs.into_iter().find(|(sign, _)| text.starts_with(sign)).map(|(sign, separator)| (separator, sign.len()))
}
