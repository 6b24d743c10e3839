//! Which names of flags and variables say that their value is a secret.

/// Parts of a name that say so wherever they stand.
const PARTS: [&str; 7] = ["secret", "password", "passwd", "passphrase", "credential", "apikey", "accesskey"];
/// Words of a name that say so as whole words.
const WORDS: [&str; 3] = ["pwd", "dsn", "key"];
/// Names of the working folder, which is none.
const FOLDERS: [&str; 2] = ["pwd", "oldpwd"];
/// Keys of rows, tables and files, which are none: `--text-key`, `--primary_key`.
const DATA: [&str; 17] = [
    "text", "label", "labels", "prompt", "input", "output", "image", "audio", "response", "target", "query", "sort",
    "primary", "foreign", "group", "column", "state",
];
/// Tokens of a vocabulary, which are none: `--pad_token`.
const VOCABULARY: [&str; 14] =
    ["pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "video", "audio", "stop", "start", "end", "special"];

/// Whether the value of `name`, a flag or a variable, is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if FOLDERS.contains(&name.as_str()) {
        return false;
    }
    let before = |at: usize| at.checked_sub(1).and_then(|at| words.get(at).copied());
    let is_word = |(at, word): (usize, &&str)| {
        WORDS.contains(word) && !(*word == "key" && before(at).is_some_and(|before| DATA.contains(&before)))
    };
    PARTS.iter().any(|part| name.contains(part)) || words.iter().enumerate().any(is_word) || is_token(&words)
}

/// `HF_TOKEN`, `--hubtoken`, `TOKEN_2`; not `--max-tokens`, `--tokenizer` or `--token-dim`.
fn is_token(words: &[&str]) -> bool {
    let stem = words.iter().rev().skip_while(|word| word.chars().all(|c| c.is_ascii_digit()) || **word == "value");
    let mut stem = stem.copied();
    let Some(first) = stem.next().and_then(|last| last.strip_suffix("token")) else { return false };
    let of = if first.is_empty() { stem.next().unwrap_or_default() } else { first };
    !VOCABULARY.contains(&of)
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_say_what_they_name() {
        let secrets = "--password HF_TOKEN --wandb-key WANDB_API_KEY OPENAI_KEY --key db.password MYSQL_PWD SENTRY_DSN \
                       AWS_SECRET_ACCESS_KEY --ssh-passphrase GOOGLE_CREDENTIALS --hubtoken TOKEN_2 apikey https://h?token";
        for name in secrets.split_whitespace() {
            assert!(is_secret(name), "{name}");
        }
        let others = "--pad_token --max_tokens --tokenizer --token-dim PWD OLDPWD --monkey --text-key --primary_key \
                      --keyboard x";
        for name in others.split_whitespace() {
            assert!(!is_secret(name), "{name}");
        }
    }
}
