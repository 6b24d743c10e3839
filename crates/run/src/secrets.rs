//! Secrets of a command line and of the environment: taken out of all that is recorded, put back when a process starts.
//! Where a name says that its value is one, the value is hidden however short it is.

use std::collections::BTreeMap;
use std::ops::Range;

use tonnage_core::secrets::{is_secret, is_service_token};

/// A value shorter than this is replaced nowhere but where a name says what it is: it is part of too many words.
const LEAST_LENGTH: usize = 6;

/// Secrets by name; a record says `{secret:NAME}` in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<String, String>);

/// A secret within a word of a command.
struct Spot<'a> {
    name: String,
    value: &'a str,
}

impl Secrets {
    /// Those of a command, and of the variables that `environment` yields.
    pub fn of(command: &[String], environment: impl Iterator<Item = (String, String)>) -> Self {
        let variables = environment.filter(|(name, value)| is_secret(name) && value.len() >= LEAST_LENGTH);
        let mut secrets = Self(variables.collect());
        for spot in spots(command).into_iter().flatten() {
            secrets.add(&spot.name, spot.value);
        }
        secrets
    }

    fn add(&mut self, name: &str, value: &str) {
        if self.name_of(value).is_some() {
            return;
        }
        let name = variable(name);
        let taken = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(taken).find(|name| !self.0.contains_key(name));
        self.0.insert(free.unwrap_or(name), value.to_owned());
    }

    fn name_of(&self, value: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| *known == value).map(|(name, _)| name.as_str())
    }

    /// `command` without secrets: the short ones too, where a name says what they are.
    pub fn hide_command(&self, command: &[String]) -> Vec<String> {
        command.iter().zip(spots(command)).map(|(word, spots)| self.hide_spots(word, &spots)).collect()
    }

    fn hide_spots(&self, word: &str, spots: &[Spot<'_>]) -> String {
        let mut named: Vec<(Range<usize>, &str)> =
            spots.iter().filter_map(|spot| Some((range(word, spot.value), self.name_of(spot.value)?))).collect();
        named.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let (mut hidden, mut at) = (String::with_capacity(word.len()), 0);
        for (range, name) in named {
            // What lies in another is hidden with it.
            if range.start >= at {
                hidden.push_str(&self.hide(&word[at..range.start]));
                hidden.push_str(&placeholder(name));
                at = range.end;
            }
        }
        hidden + &self.hide(&word[at..])
    }

    /// `text` without secrets of a length that says what they are; of two that begin alike, the longer.
    pub fn hide(&self, text: &str) -> String {
        let known = || self.0.iter().filter(|(_, value)| value.len() >= LEAST_LENGTH);
        let (mut hidden, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(next) = rest.chars().next() {
            let here = known().filter(|(_, value)| rest.starts_with(value.as_str()));
            match here.max_by_key(|(_, value)| value.len()) {
                Some((name, value)) => {
                    hidden.push_str(&placeholder(name));
                    rest = &rest[value.len()..];
                }
                None => {
                    hidden.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        hidden
    }

    /// A job file's `text` without the secrets of the `command` that it names.
    pub fn hide_in_job(&self, text: &str, command: &[String]) -> String {
        let (before, from) = text.split_at(text.find("command").unwrap_or(text.len()));
        let mut from = from.to_owned();
        for (word, hidden) in command.iter().zip(self.hide_command(command)).filter(|(word, hidden)| *word != hidden) {
            for quote in ['"', '\''] {
                from = from.replace(&format!("{quote}{word}{quote}"), &format!("{quote}{hidden}{quote}"));
            }
        }
        self.hide(before) + &self.hide(&from)
    }

    /// `word` with its secrets again: those known here, or of the environment.
    ///
    /// # Errors
    /// With the name of one that nobody knows any more.
    pub fn reveal(&self, word: &str) -> Result<String, String> {
        let mut text = word.to_owned();
        while let Some(at) = text.find("{secret:") {
            let Some(length) = text[at..].find('}') else { break };
            let name = text[at + "{secret:".len()..at + length].to_owned();
            let known = self.0.get(&name).cloned().or_else(|| std::env::var(&name).ok());
            let Some(value) = known.filter(|value| !value.contains("{secret:")) else { return Err(name) };
            text.replace_range(at..=at + length, &value);
        }
        Ok(text)
    }
}

fn placeholder(name: &str) -> String {
    format!("{{secret:{name}}}")
}

/// `--api-key` as a variable is called.
fn variable(name: &str) -> String {
    let name = name.trim_start_matches('-');
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// The secrets of each word.
fn spots(command: &[String]) -> Vec<Vec<Spot<'_>>> {
    let mut all: Vec<Vec<Spot<'_>>> = Vec::with_capacity(command.len());
    // The name that makes a secret of what follows.
    let mut name: Option<String> = None;
    for (at, word) in command.iter().enumerate() {
        let is_script = at > 0 && command[at - 1].starts_with('-') && command[at - 1].ends_with('c');
        let mut spots = Vec::new();
        if let Some(name) = name.take().filter(|_| at > 0 && is_name(&command[at - 1]) && !word.starts_with('-')) {
            spots.push(Spot { name, value: word });
            all.push(spots);
            continue;
        }
        match word.split_once('=').filter(|(name, _)| !is_script && !name.contains(char::is_whitespace)) {
            Some((name, value)) if is_secret(name) => spots.push(Spot { name: name.to_owned(), value }),
            _ => {
                for piece in pieces(word) {
                    let named = name.take().filter(|_| !piece.starts_with('-'));
                    spots.extend(named.map(|name| Spot { name, value: piece }));
                    spots.extend(found(piece));
                    name = is_name(piece).then(|| piece.to_owned());
                }
            }
        }
        all.push(spots);
    }
    for spots in &mut all {
        // What a template or the environment will fill in is no secret yet.
        spots.retain(|spot| !spot.value.is_empty() && !spot.value.starts_with(['{', '$']));
    }
    all
}

/// Whether what follows `piece` is a secret: the value of a flag, or a header's.
fn is_name(piece: &str) -> bool {
    (piece.starts_with('-') && !piece.contains('=') && is_secret(piece)) || piece.eq_ignore_ascii_case("bearer")
}

/// Where `part`, a part of `word`, lies in it.
fn range(word: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - word.as_ptr() as usize;
    start..start + part.len()
}

/// The words within a word: a script of a shell is one argument.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split(|c: char| c.is_whitespace() || c == ';').map(unquoted).filter(|piece| !piece.is_empty())
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['\'', '"'])
}

/// The secrets that a piece holds.
fn found(piece: &str) -> Vec<Spot<'_>> {
    let mut found = Vec::new();
    let assigned = piece.split_once('=').map(|(name, value)| (name, unquoted(value)));
    if let Some((name, value)) = assigned.filter(|(name, _)| is_secret(name)) {
        found.push(Spot { name: name.to_owned(), value });
    }
    found.extend(passwords(piece).map(|value| Spot { name: "url_password".to_owned(), value }));
    let value = assigned.map_or(piece, |(_, value)| value);
    if is_service_token(value) {
        found.push(Spot { name: "token".to_owned(), value });
    }
    found
}

/// `https://user:password@host`
fn passwords(piece: &str) -> impl Iterator<Item = &str> {
    piece.split("://").skip(1).filter_map(|rest| {
        let (user, _) = rest.split(['/', ',', '?']).next()?.rsplit_once('@')?;
        user.split_once(':').map(|(_, password)| password)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn secrets_are_hidden_and_come_back() {
        let cases = [
            ("t|--api-key|abcdef1", "t|--api-key|{secret:API_KEY}"),
            ("t|--hub_token=abcdef1", "t|--hub_token={secret:HUB_TOKEN}"),
            ("env|WANDB_API_KEY=abcdef1|t", "env|WANDB_API_KEY={secret:WANDB_API_KEY}|t"),
            ("sh|-c|HF_TOKEN='abcdef1' t; u", "sh|-c|HF_TOKEN='{secret:HF_TOKEN}' t; u"),
            ("t|--data|s3://u:abcdef1@h/x", "t|--data|s3://u:{secret:URL_PASSWORD}@h/x"),
            ("t|hf_abcdefghijklmnopqrst", "t|{secret:TOKEN}"),
            ("t|--note|from-env-1", "t|--note|{secret:MY_SECRET}"),
            ("t|--token|{hub}|--pad_token|<|endoftext|>|--max_tokens|100000", ""),
            ("t|--token|--next|abcdef1|--tokenizer|openai-gpt", ""),
            (
                "echo|--password|pw12|HF_TOKEN=pw12|http://u:pw12@h/|pw12",
                "echo|--password|{secret:PASSWORD}|HF_TOKEN={secret:PASSWORD}|http://u:{secret:PASSWORD}@h/|pw12",
            ),
            (
                "t|--wandb-key|abc|-passphrase|two words",
                "t|--wandb-key|{secret:WANDB_KEY}|-passphrase|{secret:PASSPHRASE}",
            ),
            ("env|DB_PASSWORD=a b|t", "env|DB_PASSWORD={secret:DB_PASSWORD}|t"),
            ("sh|-c|t --password pw; u pw", "sh|-c|t --password {secret:PASSWORD}; u pw"),
            ("curl|-H|Authorization: Bearer abc", "curl|-H|Authorization: Bearer {secret:BEARER}"),
            ("t|--password|secret|--token|secret", "t|--password|{secret:PASSWORD}|--token|{secret:PASSWORD}"),
            ("t|redis://:p@a,redis://:p@b", "t|redis://:{secret:URL_PASSWORD}@a,redis://:{secret:URL_PASSWORD}@b"),
        ];
        for (typed, hidden) in cases {
            let environment = [("MY_SECRET".to_owned(), "from-env-1".to_owned()), ("HOME".to_owned(), "/h".to_owned())];
            let secrets = Secrets::of(&words(typed), environment.into_iter());
            let recorded = secrets.hide_command(&words(typed));
            assert_eq!(recorded.join("|"), if hidden.is_empty() { typed } else { hidden });
            let revealed: Vec<String> = recorded.iter().map(|word| secrets.reveal(word).unwrap()).collect();
            assert_eq!(revealed, words(typed));
        }
    }

    #[test]
    fn a_job_file_keeps_its_values_and_hides_its_commands() {
        let command = words("t|--password|gpt2");
        let secrets = Secrets::of(&command, std::iter::empty());
        let text = "model = \"gpt2\"\n[run]\ncommand = [\"t\", \"--password\", \"gpt2\"]\n";
        let hidden = "model = \"gpt2\"\n[run]\ncommand = [\"t\", \"--password\", \"{secret:PASSWORD}\"]\n";
        assert_eq!(secrets.hide_in_job(text, &command), hidden);
    }

    #[test]
    fn a_secret_that_nobody_knows_is_named() {
        assert_eq!(Secrets::default().reveal("--k={secret:NOBODY_KNOWS_IT}"), Err("NOBODY_KNOWS_IT".to_owned()));
        assert_eq!(Secrets::default().reveal("{secret:"), Ok("{secret:".to_owned()));
    }
}
