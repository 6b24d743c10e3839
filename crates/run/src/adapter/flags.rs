//! Flags in the words of a command: found in any of their spellings, replaced in place, or added at the end.

/// Whether one of `names` is given.
pub(super) fn has_flag(argv: &[String], names: &[&str]) -> bool {
    argv.iter().any(|word| names.iter().any(|name| is_flag(word, name)))
}

/// The value of the flag `name`.
pub(super) fn flag_value<'a>(argv: &'a [String], name: &str) -> Option<&'a str> {
    let at = argv.iter().rposition(|word| is_flag(word, name))?;
    match argv[at].split_once('=') {
        Some((_, value)) => Some(value),
        None => argv.get(at + 1).map(String::as_str),
    }
}

/// Gives the flag `name` this value: where it stands, every time it stands there, or at the end.
pub(super) fn set_flag(argv: &mut Vec<String>, name: &str, value: &str) {
    let places: Vec<usize> = (0..argv.len()).filter(|at| is_flag(&argv[*at], name)).collect();
    for at in &places {
        match argv[*at].split_once('=') {
            Some((flag, _)) => argv[*at] = format!("{flag}={value}"),
            None if argv.get(at + 1).is_some_and(|next| !next.starts_with("--")) => value.clone_into(&mut argv[at + 1]),
            None => argv[*at] = format!("{}={value}", argv[*at]),
        }
    }
    if places.is_empty() {
        argv.push(name.to_owned());
        argv.push(value.to_owned());
    }
}

/// Whether `word` is the flag `name`; argparse in Hugging Face's parser takes `-` for `_`.
fn is_flag(word: &str, name: &str) -> bool {
    let flag = word.split('=').next().unwrap_or_default();
    flag.starts_with("--") && flag.replace('-', "_") == name.replace('-', "_")
}
