//! Secrets in command lines, addresses and environments: what names one, what looks like one, and texts with them hidden.
//! Whoever records, writes or shows the words of a process sends them through here first.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod address;
mod encoded;
mod extent;
mod formats;
mod names;
mod pairs;
mod programs;

use std::ops::Range;

pub use names::is_secret;

use extent::shell_word;
use pairs::{Kind, is_literal};

/// What stands in a secret's place.
pub const HIDDEN: &str = "(hidden)";
/// The longest name that a secret is given.
const LONGEST_NAME: usize = 48;

/// A secret within a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// What named it, as it was written: a flag, a variable, a key. Never a part of a secret.
    pub name: String,
    /// Where it stands in the text, in bytes.
    pub range: Range<usize>,
}

/// The secrets of each word of a command line, in order, none within another.
pub fn find_in_words(words: &[&str]) -> Vec<Vec<Spot>> {
    let mut all: Vec<Vec<Spot>> = Vec::with_capacity(words.len());
    let mut pending: Option<String> = None;
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        let kind = if is_script(before) { Kind::Script } else { Kind::Argument };
        let sets = matches!(before, "set" | "setenv") && is_name(word) && names::may_be_secret(word);
        let named = pending.take().filter(|_| !word.starts_with('-'));
        let mut spots = match named {
            // `Authorization:`, `Bearer`, the token.
            Some(_) if matches!(word.to_ascii_lowercase().as_str(), "bearer" | "basic") => {
                pending = Some((*word).to_owned());
                Vec::new()
            }
            Some(name) if is_literal(&name, word, kind) => vec![Spot { name, range: 0..word.len() }],
            _ => {
                let (spots, next) = in_word(word, before, kind);
                pending = next;
                spots
            }
        };
        if kind == Kind::Script {
            spots.extend(in_script(word));
        }
        if sets {
            pending = Some((*word).to_owned());
        }
        all.push(spots);
    }
    for (word, spot) in programs::find(words) {
        all[word].push(spot);
    }
    all.iter_mut().for_each(|spots| *spots = apart(std::mem::take(spots)));
    let secrets: Vec<&str> =
        all.iter().zip(words).flat_map(|(spots, word)| spots.iter().map(|spot| &word[spot.range.clone()])).collect();
    all.iter_mut().flatten().for_each(|spot| spot.name = safe(std::mem::take(&mut spot.name), &secrets));
    all
}

/// The secrets of a text, in order, none within another.
pub fn find_in_text(text: &str) -> Vec<Spot> {
    find_in_words(&[text]).pop().unwrap_or_default()
}

/// The words of a command line, one by one, without their secrets.
pub fn hide_in_words<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let words: Vec<&str> = words.collect();
    let found = find_in_words(&words);
    words.iter().zip(found).map(|(word, spots)| hidden(word, &spots)).collect()
}

/// A text whose words are apart by blanks, without its secrets.
pub fn hide_in_text(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut spots = find_in_text(text);
    let mut start = 0;
    for (word, found) in words.iter().zip(find_in_words(&words)) {
        spots.extend(found.into_iter().map(|spot| shifted(spot, start)));
        start += word.len() + 1;
    }
    hidden(text, &apart(spots))
}

/// The value of a variable as it may be shown.
pub fn hide_in_variable(name: &str, value: &str) -> String {
    let is_named = is_secret(name) || names::may_be_folder(name) && !names::is_path(value);
    if is_named && !value.is_empty() { HIDDEN.to_owned() } else { hide_in_text(value) }
}

/// The secrets of one word, and the name of one in the next.
fn in_word(word: &str, before: &str, kind: Kind) -> (Vec<Spot>, Option<String>) {
    let found = pairs::find(word, kind);
    let mut spots = found.spots;
    spots.extend(unnamed(word, before));
    if let Some(decoded) = encoded::decode(word) {
        let inner = pairs::find(&decoded.text, kind).spots.into_iter().chain(unnamed(&decoded.text, before));
        spots.extend(inner.map(|spot| Spot { range: decoded.range(&spot.range), ..spot }));
    }
    (spots, found.pending)
}

fn unnamed(text: &str, before: &str) -> Vec<Spot> {
    let spot = |name: &str, range| Spot { name: name.to_owned(), range };
    let passwords = address::find(text).into_iter().map(|range| spot("url_password", range));
    let tokens = formats::find(text, before).into_iter().map(|range| spot("token", range));
    let is_filled_in = |spot: &Spot| is_literal("", &text[spot.range.clone()], Kind::Argument);
    passwords.chain(tokens).filter(is_filled_in).collect()
}

/// What programs that a script starts take.
fn in_script(script: &str) -> Vec<Spot> {
    let (mut words, mut at) = (Vec::new(), 0);
    while at < script.len() {
        let length = shell_word(&script[at..]);
        if length > 0 {
            words.push((at, &script[at..at + length]));
        }
        at += length + script[at + length..].chars().next().map_or(0, char::len_utf8);
    }
    let texts: Vec<&str> = words.iter().map(|(_, word)| *word).collect();
    programs::find(&texts).into_iter().map(|(word, spot)| shifted(spot, words[word].0)).collect()
}

fn shifted(spot: Spot, by: usize) -> Spot {
    Spot { range: spot.range.start + by..spot.range.end + by, ..spot }
}

/// `sh -c`, `bash -lc`: a script follows.
fn is_script(before: &str) -> bool {
    before.starts_with('-') && !before.starts_with("--") && before.ends_with('c')
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// In order; what overlaps is one secret, of the name of the longest.
fn apart(mut spots: Vec<Spot>) -> Vec<Spot> {
    spots.retain(|spot| !spot.range.is_empty());
    spots.sort_by_key(|spot| (spot.range.start, std::cmp::Reverse(spot.range.end)));
    let mut apart: Vec<Spot> = Vec::with_capacity(spots.len());
    for spot in spots {
        match apart.last_mut().filter(|last| spot.range.start < last.range.end) {
            Some(last) => last.range.end = last.range.end.max(spot.range.end),
            None => apart.push(spot),
        }
    }
    apart
}

/// The name, if it is one and holds no secret.
fn safe(name: String, secrets: &[&str]) -> String {
    let holds = |secret: &&str| secret.len() > 3 && name.contains(*secret);
    if name.len() <= LONGEST_NAME && is_name(&name) && !secrets.iter().any(holds) { name } else { "secret".to_owned() }
}

fn hidden(text: &str, spots: &[Spot]) -> String {
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    for spot in spots {
        shown.push_str(&text[at..spot.range.start]);
        shown.push_str(HIDDEN);
        at = spot.range.end;
    }
    shown + &text[at..]
}

#[cfg(test)]
mod tests;
