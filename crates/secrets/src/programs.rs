//! Secrets that only a program's own habits show: `mysql -pPASSWORD`, `curl -u user:password`, `wandb login KEY`.

use std::ops::Range;

use super::Spot;

/// How a program takes a secret.
enum Habit {
    /// In the word after the flag.
    After(&'static str),
    /// In the same word as the flag.
    Glued(&'static str),
    /// Behind the mark in the word after the flag, or in the flag's own word: `-u user:password`.
    Behind(&'static str, char),
    /// The first word that is no flag after this one.
    Position(&'static str),
}

use Habit::{After, Behind, Glued, Position};

/// By the name of the program's file.
const PROGRAMS: &[(&[&str], &[Habit])] = &[
    (&["sshpass"], &[After("-p"), Glued("-p")]),
    (&["mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"], &[Glued("-p")]),
    (&["mongo", "mongosh", "mongodump", "docker", "podman", "nerdctl", "helm", "oc"], &[After("-p")]),
    (&["redis-cli"], &[After("-a")]),
    (&["sqlcmd", "bcp"], &[After("-P"), Glued("-P")]),
    (&["ldapsearch", "ldapmodify", "ldapadd"], &[After("-w")]),
    (&["7z", "unrar"], &[Glued("-p")]),
    (&["zip", "unzip"], &[After("-P")]),
    (&["curl"], &[Behind("-u", ':'), Behind("--user", ':'), Behind("-U", ':'), Behind("--proxy-user", ':')]),
    (&["http", "https"], &[Behind("-a", ':')]),
    (&["smbclient"], &[Behind("-U", '%')]),
    (&["wandb", "hf", "huggingface-cli"], &[Position("login")]),
];
/// `docker run -p 80:80` is no secret.
const LOGS_IN: [&str; 5] = ["docker", "podman", "nerdctl", "helm", "oc"];

/// The secrets of `words`, each with where it begins in its text, by the number of the word.
pub(super) fn find(words: &[&str]) -> Vec<(usize, Spot)> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let name = word.rsplit('/').next().unwrap_or(word);
        for (names, habits) in PROGRAMS {
            if names.contains(&name) {
                let arguments = &words[at + 1..];
                if !LOGS_IN.contains(&name) || arguments.contains(&"login") {
                    found.extend(
                        habits
                            .iter()
                            .filter_map(|habit| taken(habit, arguments))
                            .map(|(word, spot)| (at + 1 + word, spot)),
                    );
                }
            }
        }
    }
    found
}

fn taken(habit: &Habit, words: &[&str]) -> Option<(usize, Spot)> {
    let spot = |at: usize, range: Range<usize>| {
        let value = words.get(at)?.get(range.clone())?;
        let is_literal = !value.is_empty() && !value.starts_with(['{', '-']);
        is_literal.then(|| (at, Spot { name: "password".to_owned(), range }))
    };
    let behind = |at: usize, from: usize, mark: char| {
        let word = words.get(at)?;
        let start = from + word.get(from..)?.find(mark)? + mark.len_utf8();
        spot(at, start..word.len())
    };
    let place = |flag: &str| words.iter().position(|word| *word == flag);
    match habit {
        After(flag) => {
            let at = place(flag)? + 1;
            spot(at, 0..words.get(at)?.len())
        }
        Glued(flag) => {
            let at = words
                .iter()
                .position(|word| word.len() > flag.len() && word.starts_with(flag) && !word.contains('='))?;
            spot(at, flag.len()..words[at].len())
        }
        Behind(flag, mark) => {
            let glued = || words.iter().position(|word| word.len() > flag.len() && word.starts_with(flag));
            place(flag)
                .and_then(|at| behind(at + 1, 0, *mark))
                .or_else(|| glued().and_then(|at| behind(at, flag.len(), *mark)))
        }
        Position(command) => {
            let at = place(command)? + 1;
            let at = at + words.get(at..)?.iter().position(|word| !word.starts_with('-'))?;
            spot(at, 0..words[at].len())
        }
    }
}
