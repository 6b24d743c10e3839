//! Secrets of a command line and of the environment: taken out of all that is recorded, put back when a process starts.
//! Where a name says that its value is one, the value is hidden however short it is.

use std::collections::BTreeMap;

use tonnage_secrets::{HIDDEN, Spot, find_in_text, find_in_words, hide_in_text, is_secret};

/// A value shorter than this is replaced nowhere but where a name says what it is: it is part of too many words.
const LEAST_LENGTH: usize = 6;

/// Secrets by name; a record says `{secret:NAME}` in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<String, String>);

impl Secrets {
    /// Those of a command, and of the variables that `environment` yields: a variable's whole value, or an address's password.
    pub fn found_in(command: &[String], environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut secrets = Self::default();
        let (whole, others): (Vec<_>, Vec<_>) = environment.partition(|(name, _)| is_secret(name));
        secrets.0.extend(whole.into_iter().filter(|(_, value)| value.len() >= LEAST_LENGTH));
        for (word, spots) in command.iter().zip(spots_in(command)) {
            spots.iter().for_each(|spot| secrets.add_secret(&spot.name, &word[spot.range.clone()]));
        }
        for (_, value) in others {
            // Not under the variable's own name: its value is more than the secret.
            let long = find_in_text(&value).into_iter().filter(|spot| spot.range.len() >= LEAST_LENGTH);
            long.for_each(|spot| secrets.add_secret(&spot.name, &value[spot.range.clone()]));
        }
        secrets
    }

    fn add_secret(&mut self, name: &str, value: &str) {
        if self.name_of(value).is_some() {
            return;
        }
        let name = variable_of(name);
        let taken = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(taken).find(|name| !self.0.contains_key(name));
        self.0.insert(free.unwrap_or(name), value.to_owned());
    }

    fn name_of(&self, value: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| *known == value).map(|(name, _)| name.as_str())
    }

    /// `command` without secrets: the short ones too, where a name says what they are.
    pub fn hide_command(&self, command: &[String]) -> Vec<String> {
        command.iter().zip(spots_in(command)).map(|(word, spots)| self.hide_spots(word, &spots)).collect()
    }

    fn hide_spots(&self, word: &str, spots: &[Spot]) -> String {
        let (mut hidden, mut at) = (String::with_capacity(word.len()), 0);
        for spot in spots {
            let name = self.name_of(&word[spot.range.clone()]);
            hidden.push_str(&self.hide_in(&word[at..spot.range.start]));
            hidden.push_str(&name.map_or_else(|| HIDDEN.to_owned(), placeholder_of));
            at = spot.range.end;
        }
        hidden + &self.hide_in(&word[at..])
    }

    /// `text` without secrets of a length that says what they are; of two that begin alike, the longer.
    pub fn hide_in(&self, text: &str) -> String {
        let known = || self.0.iter().filter(|(_, value)| value.len() >= LEAST_LENGTH);
        let (mut hidden, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(next) = rest.chars().next() {
            let here = known().filter(|(_, value)| rest.starts_with(value.as_str()));
            match here.max_by_key(|(_, value)| value.len()) {
                Some((name, value)) => {
                    hidden.push_str(&placeholder_of(name));
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

    /// A job file's `text` without secrets: those of the command that it names, and what looks like one elsewhere.
    pub fn hide_in_job(&self, text: &str) -> String {
        let command = named_command(text);
        let hidden_command = self.hide_command(&command);
        let (before, from) = text.split_at(text.find("command").unwrap_or(text.len()));
        let mut from = from.to_owned();
        for (word, hidden) in command.iter().zip(&hidden_command).filter(|(word, hidden)| word != hidden) {
            for quote in ['"', '\''] {
                from = from.replace(&format!("{quote}{word}{quote}"), &format!("{quote}{hidden}{quote}"));
            }
        }
        let replaced = [before, &from].concat();
        // Words may be written with escapes.
        let is_same = named_command(&replaced) == hidden_command;
        let replaced = if is_same { replaced } else { with_command(text, &hidden_command) };
        self.hide_in(&replaced).split_inclusive('\n').map(hide_in_line).collect()
    }

    /// `word` with its secrets again: those known here, or of the environment.
    ///
    /// # Errors
    /// With the name of one that nobody knows any more.
    pub fn reveal_in(&self, word: &str) -> Result<String, String> {
        let (mut text, mut rest) = (String::with_capacity(word.len()), word);
        while let Some(at) = rest.find(OPENING) {
            let (before, from) = rest.split_at(at);
            text.push_str(before);
            let inner = &from[OPENING.len()..];
            let name = inner.split_once('}').map(|(name, _)| name).filter(|name| is_placeholder(name));
            rest = match name {
                Some(name) => {
                    let known = self.0.get(name).cloned().or_else(|| std::env::var(name).ok());
                    text.push_str(&known.filter(|value| !value.contains(OPENING)).ok_or_else(|| name.to_owned())?);
                    &inner[name.len() + 1..]
                }
                None => {
                    text.push_str(OPENING);
                    inner
                }
            };
        }
        Ok(text + rest)
    }
}

/// What a placeholder begins with.
const OPENING: &str = "{secret:";

/// Names of placeholders are those of variables: [`variable_of`].
fn is_placeholder(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn placeholder_of(name: &str) -> String {
    format!("{OPENING}{name}}}")
}

/// `--api-key` as a variable is called.
fn variable_of(name: &str) -> String {
    let name = name.trim_start_matches('-');
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// The command that a job file names.
fn named_command(text: &str) -> Vec<String> {
    let table: Option<toml::Table> = toml::from_str(text).ok();
    let command = table.as_ref().and_then(|table| table.get("run")?.get("command")?.as_array());
    command.into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// The job file with another command; its comments are lost.
fn with_command(text: &str, command: &[String]) -> String {
    let Ok(mut table) = toml::from_str::<toml::Table>(text) else { return hide_in_text(text) };
    if let Some(run) = table.get_mut("run").and_then(toml::Value::as_table_mut) {
        run.insert("command".to_owned(), command.to_vec().into());
    }
    table.to_string()
}

/// Comments may hold more than the file's keys say.
fn hide_in_line(line: &str) -> String {
    match line.split_once('#') {
        Some((before, comment)) => format!("{before}#{}", hide_in_text(comment)),
        None => line.to_owned(),
    }
}

/// The secrets of each word.
fn spots_in(command: &[String]) -> Vec<Vec<Spot>> {
    find_in_words(&command.iter().map(String::as_str).collect::<Vec<_>>())
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
            let secrets = Secrets::found_in(&words(typed), environment.into_iter());
            let recorded = secrets.hide_command(&words(typed));
            assert_eq!(recorded.join("|"), if hidden.is_empty() { typed } else { hidden });
            let revealed: Vec<String> = recorded.iter().map(|word| secrets.reveal_in(word).unwrap()).collect();
            assert_eq!(revealed, words(typed));
        }
    }

    #[test]
    fn a_job_file_keeps_its_values_and_hides_its_commands() {
        let command = words("t|--password|gpt2");
        let secrets = Secrets::found_in(&command, std::iter::empty());
        let text = "model = \"gpt2\"\n[run]\ncommand = [\"t\", \"--password\", \"gpt2\"]\n";
        let hidden = "model = \"gpt2\"\n[run]\ncommand = [\"t\", \"--password\", \"{secret:PASSWORD}\"]\n";
        assert_eq!(secrets.hide_in_job(text), hidden);
        // Of a command that was not started, and written with escapes.
        let text = "# token: abc\nmodel = \"gpt2\"\n[run]\ncommand = [\"t\", '--x={\"api_key\": \"pw1\"}', \"--\\u0070assword=pw2\"]\n";
        let hidden = Secrets::default().hide_in_job(text);
        assert!(!hidden.contains("abc") && !hidden.contains("pw1") && !hidden.contains("pw2"), "{hidden}");
        assert_eq!(named_command(&hidden), ["t", "--x={\"api_key\": \"(hidden)\"}", "--password=(hidden)"]);
    }

    #[test]
    fn an_address_in_the_environment_tells_its_password() {
        let environment = [("DATABASE_URL".to_owned(), "postgres://u:abcdef12@h/x".to_owned())];
        let secrets = Secrets::found_in(&words("t|--pw-of-db|x|abcdef12"), environment.into_iter());
        assert_eq!(secrets.hide_in("t abcdef12"), "t {secret:URL_PASSWORD}");
    }

    #[test]
    fn a_secret_that_nobody_knows_is_named() {
        assert_eq!(Secrets::default().reveal_in("--k={secret:NOBODY_KNOWS_IT}"), Err("NOBODY_KNOWS_IT".to_owned()));
        assert_eq!(Secrets::default().reveal_in("{secret:"), Ok("{secret:".to_owned()));
    }
}
