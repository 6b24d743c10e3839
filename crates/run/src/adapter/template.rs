//! `{names}` in the words of a command. Only known names are replaced; what else stands in braces stays as it is, and
//! `{{name}}` of a known name is `{name}`.

use std::path::Path;
use tonnage_core::job::keys::{GPU, GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, MICRO_BATCH_SIZE};

use super::{Injection, RESUME};
use crate::RunError;

/// What names stand for.
pub(super) struct Words<'a> {
    pub values: &'a [(String, String)],
    pub injection: &'a Injection<'a>,
    pub overrides: &'a Path,
}

/// Whether the command has a template for `key`.
pub(super) fn names_key(command: &[String], key: &str) -> bool {
    command.iter().any(|word| word.contains(&format!("{{{key}}}")) || word.contains(&format!("{{{}}}", short_key(key))))
}

/// The key without its table.
fn short_key(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// The command with its names replaced. A word that names a checkpoint is left out where there is none, and with it the
/// flag before it.
pub(super) fn fill_placeholders(command: &[String], words: &Words<'_>) -> Vec<String> {
    let mut argv: Vec<String> = Vec::with_capacity(command.len());
    let checkpoint = format!("{{{RESUME}}}");
    for word in command {
        if word.contains(&checkpoint) && words.injection.resume_from.is_none() {
            if *word == checkpoint && argv.last().is_some_and(|flag| flag.starts_with('-') && !flag.contains('=')) {
                argv.pop();
            }
            continue;
        }
        argv.push(fill_word(word, words));
    }
    argv
}

/// Names that need no job, and what else they need; `gpu` is the one that a node is put on, or that the job names.
const OWN: [&str; 9] = ["attempt", "attempt_dir", "overrides", "node", "node_name", "role", "seed", GPU, RESUME];
/// Names of the batch, of a job alone.
const BATCH: [&str; 4] =
    [MICRO_BATCH_SIZE, GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, "steps_per_generation"];

/// Whether every name in `command` will be filled in, `keys` being those of the job.
///
/// # Errors
/// With the first that needs a job, or looks like a name misspelt.
pub fn check_placeholders(command: &[String], keys: Option<&[String]>) -> Result<(), RunError> {
    command.iter().flat_map(|word| written_placeholders(word)).try_for_each(|name| {
        let is_key = keys.is_some_and(|keys| keys.iter().any(|key| key == name || short_key(key) == name));
        if name == GPU && !is_key {
            return Err(refused_placeholder(
                name,
                format!(
                    " needs a job, which says the GPU: `tonnage run JOB -- COMMAND`; write {{{{{name}}}}} for the \
                     braces themselves"
                ),
            ));
        }
        if OWN.contains(&name) || is_key || (keys.is_some() && BATCH.contains(&name)) {
            return Ok(());
        }
        let literal = format!("write {{{{{name}}}}} for the braces themselves");
        if BATCH.contains(&name) {
            return Err(refused_placeholder(name, format!(" needs a job: `tonnage run JOB -- COMMAND`; {literal}")));
        }
        match meant_placeholder(name) {
            Some(known) => Err(refused_placeholder(name, format!(": is it `{{{known}}}`? ({literal})"))),
            None => Ok(()),
        }
    })
}

/// `value` so that filling in makes it `value` again, `keys` being those of the job.
///
/// # Errors
/// When it holds a known name in doubled braces, which cannot be written.
pub fn escape_value(value: &str, keys: &[String]) -> Result<String, RunError> {
    let is_known = |name: &str| {
        OWN.contains(&name) || BATCH.contains(&name) || keys.iter().any(|key| key == name || short_key(key) == name)
    };
    let mut escaped = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('{') {
        escaped.push_str(&rest[..at]);
        rest = &rest[at..];
        let doubled = rest.strip_prefix("{{").and_then(|inner| inner.split_once("}}")).map(|(name, _)| name);
        if let Some(name) = doubled.filter(|name| is_known(name) || meant_placeholder(name).is_some()) {
            return Err(refused_placeholder(name, ": a value cannot hold it in doubled braces".to_owned()));
        }
        match rest.find('}').filter(|end| is_known(&rest[1..*end]) || meant_placeholder(&rest[1..*end]).is_some()) {
            Some(end) => {
                escaped.push_str(&format!("{{{}}}", &rest[..=end]));
                rest = &rest[end + 1..];
            }
            None => {
                escaped.push('{');
                rest = &rest[1..];
            }
        }
    }
    Ok(escaped + rest)
}

fn refused_placeholder(name: &str, problem: String) -> RunError {
    RunError::Template { name: name.to_owned(), problem }
}

/// The name that `name` is, or is a misspelling of.
fn meant_placeholder(name: &str) -> Option<&'static str> {
    OWN.iter().chain(&BATCH).copied().find(|known| is_misspelt(name, known))
}

/// The names in braces, those of a shell's `${name}` and doubled ones left out.
fn written_placeholders(word: &str) -> Vec<&str> {
    let is_name = |text: &&str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
    };
    let name = |(at, _): (usize, &str)| {
        let before = word[..at].chars().next_back();
        let inner = word[at + 1..].split_once('}')?.0;
        (!matches!(before, Some('$' | '{'))).then_some(inner).filter(is_name)
    };
    word.match_indices('{').filter_map(name).collect()
}

/// Whether `name` is one or two letters off `known`, or the same words in another spelling.
fn is_misspelt(name: &str, known: &str) -> bool {
    let plain = |text: &str| text.replace(['-', '_', '.'], "").to_ascii_lowercase();
    let (name, known) = (plain(name), plain(known));
    let allowed = if known.len() < 8 { 1 } else { 2 };
    name == known || (name.len() >= 4 && edit_distance(&name, &known) <= allowed)
}

/// Letters to insert, leave out or replace.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = before + usize::from(ca != *cb);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn fill_word(word: &str, words: &Words<'_>) -> String {
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((doubled, after)) = rest.strip_prefix("{{").and_then(|rest| rest.split_once("}}"))
            && (words.meaning(doubled).is_some() || meant_placeholder(doubled).is_some())
        {
            filled.push_str(&format!("{{{doubled}}}"));
            rest = after;
            continue;
        }
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
    /// A value of the job that no attempt changes.
    fn of_job(&self, name: &str) -> Option<String> {
        let values = &self.injection.job?.values;
        let exact = values.iter().find(|value| value.key == name);
        let value = exact.or_else(|| values.iter().find(|value| short_key(&value.key) == name))?;
        Some(value.value.trim_matches('"').to_owned())
    }

    fn meaning(&self, name: &str) -> Option<String> {
        let value = self.values.iter().rev().find(|(key, _)| key == name || short_key(key) == name);
        if let Some((_, value)) = value {
            return Some(value.clone());
        }
        let node = self.injection.node;
        match name {
            "attempt" => Some(self.injection.attempt.to_string()),
            "attempt_dir" => Some(self.injection.folder.display().to_string()),
            "overrides" => Some(self.overrides.display().to_string()),
            "node" => node.map(|node| node.index.to_string()),
            "node_name" => node.map(|node| node.name.clone()),
            "role" => node.map(|node| node.role.clone()),
            "seed" => node.map(|node| node.seed.to_string()),
            GPU => node.and_then(|node| node.gpu.clone()).or_else(|| self.of_job(name)),
            _ => self.of_job(name),
        }
    }
}
