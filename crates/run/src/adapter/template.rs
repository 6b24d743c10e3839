//! `{names}` in the words of a command. Only known names are replaced; what else stands in braces stays as it is.

use std::path::Path;

use super::{RESUME, Telling};

/// What names stand for.
pub(super) struct Words<'a> {
    pub values: &'a [(String, String)],
    pub telling: &'a Telling<'a>,
    pub overrides: &'a Path,
}

/// Whether the command has a template for `key`.
pub(super) fn names(command: &[String], key: &str) -> bool {
    command.iter().any(|word| word.contains(&format!("{{{key}}}")) || word.contains(&format!("{{{}}}", short(key))))
}

/// The key without its table.
fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// The command with its names replaced. A word that names a checkpoint is left out where there is none, and with it the
/// flag before it.
pub(super) fn fill(command: &[String], words: &Words<'_>) -> Vec<String> {
    let mut argv: Vec<String> = Vec::with_capacity(command.len());
    let checkpoint = format!("{{{RESUME}}}");
    for word in command {
        if word.contains(&checkpoint) && words.telling.resume_from.is_none() {
            if *word == checkpoint && argv.last().is_some_and(|flag| flag.starts_with('-') && !flag.contains('=')) {
                argv.pop();
            }
            continue;
        }
        argv.push(fill_word(word, words));
    }
    argv
}

fn fill_word(word: &str, words: &Words<'_>) -> String {
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = rest.find('}').and_then(|end| Some((end, words.meaning(&rest[1..end])?)));
        match known {
            Some((end, meaning)) => {
                filled.push_str(&meaning);
                rest = &rest[end + 1..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled + rest
}

impl Words<'_> {
    fn meaning(&self, name: &str) -> Option<String> {
        let value = self.values.iter().rev().find(|(key, _)| key == name || short(key) == name);
        if let Some((_, value)) = value {
            return Some(value.clone());
        }
        let node = self.telling.node;
        match name {
            "attempt" => Some(self.telling.attempt.to_string()),
            "attempt_dir" => Some(self.telling.folder.display().to_string()),
            "overrides" => Some(self.overrides.display().to_string()),
            "node" => node.map(|node| node.index.to_string()),
            "node_name" => node.map(|node| node.name.clone()),
            "role" => node.map(|node| node.role.clone()),
            "seed" => node.map(|node| node.seed.to_string()),
            "gpu" => node.and_then(|node| node.gpu.clone()),
            _ => None,
        }
    }
}
