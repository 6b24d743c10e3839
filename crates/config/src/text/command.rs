//! Command lines of trainers, as they stand in scripts: the launcher's options, the program, and its arguments.

use serde_json::Value;
use tonnage_core::job::{JobError, Place};

use super::shell::{Line, Word, shell_lines};
use super::{Lines, MAX_VALUES, read_scalar, unreadable_file};
use crate::tree::{Entry, Node, find_entry, same_key};

/// A command that starts a training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Command {
    /// `torchrun`, `accelerate`, `deepspeed`: who starts it.
    pub launcher: Option<String>,
    /// The launcher's options.
    pub launched_with: Vec<Entry>,
    /// The program: a script's or module's path, `trl sft`.
    pub program: String,
    /// What follows the program, options with their values.
    pub arguments: Vec<Entry>,
    /// Keys that a later word gives again, as Hydra lets it: the earlier ones.
    pub replaced: Vec<Entry>,
    /// Words that are no options: files, mostly.
    pub words: Vec<Entry>,
}

const LAUNCHERS: [&str; 3] = ["torchrun", "accelerate", "deepspeed"];
const PROGRAMS: [&str; 6] = ["python", "python3", "trl", "llamafactory-cli", "axolotl", "ray"];

/// The command of `text` that starts a training: the one with most words.
///
/// # Errors
/// When there is none.
pub fn read_command(name: &str, text: &str) -> Result<Command, JobError> {
    let lines = shell_lines(text);
    if lines.iter().map(|line| line.words.len()).sum::<usize>() > MAX_VALUES {
        return Err(unreadable_file(name, format!("more than {MAX_VALUES} words"), None));
    }
    let is_start = |line: &&Line| line.words.iter().any(|word| is_program(&word.text));
    let Some(line) = lines.iter().filter(is_start).max_by_key(|line| line.words.len()) else {
        let problem = "no command of a trainer is in it: python, torchrun, accelerate launch, deepspeed, trl";
        return Err(unreadable_file(name, problem, None));
    };
    command_of(name, text, line)
}

fn is_program(word: &str) -> bool {
    let base = word.rsplit('/').next().unwrap_or_default();
    LAUNCHERS.contains(&base) || PROGRAMS.contains(&base) || base.starts_with("python3.") || is_module(word)
}

/// A module that says by itself what it trains.
fn is_module(word: &str) -> bool {
    word.starts_with("openrlhf.") || word.starts_with("verl.trainer")
}

/// Whether it is a key of Hydra's (`actor.optim.lr`).
fn is_path(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._+-@/".contains(c))
}

fn command_of(name: &str, text: &str, line: &Line) -> Result<Command, JobError> {
    let lines = Lines::new(name, text);
    let place = |at: usize| lines.place(at);
    let start = line.words.iter().position(|word| is_program(&word.text)).unwrap_or_default();
    let mut words = line.words.get(start..).unwrap_or_default().iter().peekable();
    let mut command = Command::default();
    let mut last = String::new();
    let mut is_options = false;
    while let Some(word) = words.next() {
        let base = word.text.rsplit('/').next().unwrap_or_default().to_owned();
        let in_program = !command.program.is_empty();
        let is_module_next = ["-m", "--module"].contains(&word.text.as_str()) && !in_program;
        if is_module_next && words.peek().is_some_and(|next| !next.text.starts_with('-')) {
            name_module(&mut command, words.next().map(|word| word.text.as_str()).unwrap_or_default());
        } else if let Some(option) = word.text.strip_prefix("--").filter(|option| !option.is_empty()) {
            is_options = true;
            let (key, value) = match option.split_once('=') {
                Some((key, value)) => (key.to_owned(), read_scalar(value)),
                None => (option.to_owned(), flag_value(&mut words, in_program)),
            };
            let entries = if in_program { &mut command.arguments } else { &mut command.launched_with };
            push(entries, key, value, place(word.at), name)?;
        } else if !in_program && LAUNCHERS.contains(&base.as_str()) {
            command.launcher = Some(base.clone());
            words.next_if(|next| next.text == "launch");
        } else if let Some(option) = word.text.strip_prefix('-').filter(|option| !option.is_empty() && !in_program) {
            let value = flag_value(&mut words, false);
            push(&mut command.launched_with, option.to_owned(), value, place(word.at), name)?;
        } else if !in_program && ["trl", "llamafactory-cli", "axolotl"].contains(&base.as_str()) {
            let sub = words.next().map(|word| word.text.clone()).unwrap_or_default();
            command.program = format!("{base} {sub}");
        } else if !in_program && (word.text.ends_with(".py") || is_module(&word.text)) {
            command.program.clone_from(&word.text);
        } else if let Some((key, value)) = word.text.split_once('=').filter(|_| in_program) {
            let key = key.trim_start_matches('+').to_owned();
            let is_again = |entry: &mut Entry| same_key(&entry.key, &key);
            command.replaced.extend(command.arguments.extract_if(.., is_again));
            push(&mut command.arguments, key, read_scalar(value), place(word.at), name)?;
        } else if in_program && !matches!(word.text.as_str(), "$@" | "$*" | "EOF") {
            let entry = Entry { key: word.text.clone(), place: Some(place(word.at)), node: Node::Value(Value::Null) };
            command.words.push(entry);
        }
        last = base;
    }
    if command.program.is_empty() && !is_options {
        return Err(unreadable_file(name, format!("`{last}` starts no trainer"), None));
    }
    Ok(command)
}

/// A module of Python: a launcher's own, or the program.
fn name_module(command: &mut Command, module: &str) {
    if LAUNCHERS.iter().any(|known| module.starts_with(known)) {
        command.launcher = module.split('.').next().map(str::to_owned);
    } else if module == "torch.distributed.run" || module == "torch.distributed.launch" {
        command.launcher = Some("torchrun".to_owned());
    } else {
        command.program = module.to_owned();
    }
}

fn push(entries: &mut Vec<Entry>, key: String, value: Value, place: Place, name: &str) -> Result<(), JobError> {
    if find_entry(entries, &key).is_some() {
        return Err(super::said_twice(&key, Some(place), name));
    }
    entries.push(Entry { key, place: Some(place), node: Node::Value(value) });
    Ok(())
}

/// What follows an option: nothing, a value, or for a program's several.
fn flag_value<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a Word>>, several: bool) -> Value {
    let is_value = |word: &&Word| {
        let number = word.text.parse::<f64>().is_ok();
        let assigns = word.text.split_once('=').is_some_and(|(key, _)| is_path(key));
        number || !(assigns || word.text.starts_with('-') || word.text.ends_with(".py") && !several)
    };
    let mut values = Vec::new();
    while let Some(word) = words.next_if(is_value) {
        values.push(read_scalar(&word.text));
        if !several {
            break;
        }
    }
    match values.len() {
        0 => true.into(),
        1 => values.swap_remove(0),
        _ => Value::Array(values),
    }
}
