//! Secrets of a command line and of the environment: taken out of all that is recorded, put back when a process starts.

use std::collections::BTreeMap;

use tonnage_core::secrets::{address_password, is_service_token, is_token};

/// A value shorter than this is replaced nowhere but where it was found: it is no secret, and part of too many words.
const LEAST_LENGTH: usize = 6;
/// Names that end so are secrets: `WANDB_API_KEY`, `--hub_token`, `db.password`.
const SECRET_ENDS: [&str; 8] =
    ["api_key", "apikey", "access_key", "secret_key", "private_key", "secret", "password", "passwd"];
/// Secrets by name; a record says `{secret:NAME}` in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<String, String>);

impl Secrets {
    /// Those of a command, and of the variables that `environment` yields.
    pub fn of(command: &[String], environment: impl Iterator<Item = (String, String)>) -> Self {
        let variables = environment.filter(|(name, value)| is_secret(name) && value.len() >= LEAST_LENGTH);
        let mut secrets = Self(variables.collect());
        let pieces: Vec<&str> = command.iter().flat_map(|word| pieces(word)).collect();
        for (at, piece) in pieces.iter().enumerate() {
            let next = pieces.get(at + 1).copied();
            for (name, value) in found(piece, next) {
                secrets.add(&name, value);
            }
        }
        secrets
    }

    fn add(&mut self, name: &str, value: &str) {
        // What a template or the environment will fill in is no secret yet.
        if value.len() < LEAST_LENGTH || value.starts_with(['{', '$']) || self.0.values().any(|known| known == value) {
            return;
        }
        let name = variable(name);
        let taken = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(taken).find(|name| !self.0.contains_key(name));
        self.0.insert(free.unwrap_or(name), value.to_owned());
    }

    /// `text` without secrets.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.0 {
            text = text.replace(value.as_str(), &placeholder(name));
        }
        text
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

/// The words within a word: a script of a shell is one argument.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split(|c: char| c.is_whitespace() || c == ';').map(unquoted).filter(|piece| !piece.is_empty())
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['\'', '"'])
}

/// The secrets that a piece holds, or makes of the next.
fn found<'a>(piece: &'a str, next: Option<&'a str>) -> Vec<(String, &'a str)> {
    let mut found = Vec::new();
    match piece.split_once('=') {
        Some((name, value)) if is_secret(name) => found.push((name.to_owned(), unquoted(value))),
        None if piece.starts_with("--") && is_secret(piece) => {
            found.extend(next.filter(|next| !next.starts_with('-')).map(|next| (piece.to_owned(), next)));
        }
        _ => {}
    }
    if let Some(password) = address_password(piece) {
        found.push(("url_password".to_owned(), password));
    }
    let value = piece.split_once('=').map_or(piece, |(_, value)| unquoted(value));
    if is_service_token(value) {
        found.push(("token".to_owned(), value));
    }
    found
}

fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase().replace(['-', '.'], "_");
    (name.ends_with("token") && is_token(&name)) || SECRET_ENDS.iter().any(|end| name.ends_with(end))
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
        ];
        for (typed, hidden) in cases {
            let environment = [("MY_SECRET".to_owned(), "from-env-1".to_owned()), ("HOME".to_owned(), "/h".to_owned())];
            let secrets = Secrets::of(&words(typed), environment.into_iter());
            let recorded: Vec<String> = words(typed).iter().map(|word| secrets.hide(word)).collect();
            assert_eq!(recorded.join("|"), if hidden.is_empty() { typed } else { hidden });
            let revealed: Vec<String> = recorded.iter().map(|word| secrets.reveal(word).unwrap()).collect();
            assert_eq!(revealed, words(typed));
        }
    }

    #[test]
    fn a_secret_that_nobody_knows_is_named() {
        assert_eq!(Secrets::default().reveal("--k={secret:NOBODY_KNOWS_IT}"), Err("NOBODY_KNOWS_IT".to_owned()));
        assert_eq!(Secrets::default().reveal("{secret:"), Ok("{secret:".to_owned()));
    }
}
