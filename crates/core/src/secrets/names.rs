//! Which names of flags and variables say that their value is a secret.

/// Parts of a name, separators left out, that say so wherever they stand.
const PARTS: [&str; 8] =
    ["secret", "password", "passwd", "passphrase", "credential", "apikey", "accesskey", "privatekey"];
/// Words of a name that say so as whole words.
const WORDS: [&str; 5] = ["pwd", "dsn", "pat", "pw", "authorization"];
/// Names of the working folder, which is none.
const FOLDERS: [&str; 2] = ["pwd", "oldpwd"];
/// Last words of names whose values lead to a secret and are none: `--key-file`.
const PLACES: [&str; 4] = ["file", "path", "dir", "folder"];
/// Keys of rows, tables and files, which are none: `--text-key`, `--primary_key`.
const DATA: [&str; 17] = [
    "text", "label", "labels", "prompt", "input", "output", "image", "audio", "response", "target", "query", "sort",
    "primary", "foreign", "group", "column", "state",
];
/// Tokens of a vocabulary, which are none: `--pad_token`.
const VOCABULARY: [&str; 14] =
    ["pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "video", "audio", "stop", "start", "end", "special"];

/// Whether the value of `name`, a flag or a variable, is a secret.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if FOLDERS.contains(&name.as_str()) || words.last().is_some_and(|last| PLACES.contains(last)) {
        return false;
    }
    let compact = words.concat();
    PARTS.iter().any(|part| compact.contains(part))
        || words.iter().any(|word| WORDS.contains(word))
        || ends_as_secret(&words)
}

/// `HF_TOKEN`, `--hubtoken`, `TOKEN_2`, `--wandb-key`; not `--max-tokens`, `--tokenizer`, `--token-dim`, `--num-key-value-heads`.
fn ends_as_secret(words: &[&str]) -> bool {
    let counts = |word: &&str| word.chars().all(|c| c.is_ascii_digit()) || matches!(*word, "value" | "id");
    let mut stem = words.iter().copied().rev().skip_while(counts);
    let Some(last) = stem.next() else { return false };
    let before = stem.next().unwrap_or_default();
    match last.strip_suffix("token") {
        Some("") => !VOCABULARY.contains(&before),
        Some(of) => !VOCABULARY.contains(&of),
        None => last == "auth" || last == "key" && !DATA.contains(&before),
    }
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_say_what_they_name() {
        let secrets = "--password HF_TOKEN --wandb-key WANDB_API_KEY OPENAI_KEY --key db.password MYSQL_PWD SENTRY_DSN \
                       AWS_SECRET_ACCESS_KEY --ssh-passphrase GOOGLE_CREDENTIALS --hubtoken TOKEN_2 apikey https://h?token AWS_ACCESS_KEY_ID OPENAI_API_KEY_TEAM \
                       hf_token GITHUB_PAT MY_PASSPHRASE dbPassword --hub-token PGPASSWORD BASIC_AUTH Authorization";
        for name in secrets.split_whitespace() {
            assert!(is_secret(name), "{name}");
        }
        let others = "--pad_token --max_tokens --tokenizer --token-dim PWD OLDPWD --monkey --text-key --primary_key --num_key_value_heads --key-file PASSWORD_FILE \
                      --keyboard x RANK PATH PYTHONPATH TOKENIZERS_PARALLELISM KEYBOARD_LAYOUT AUTHOR pattern --image-token SSH_AUTH_SOCK";
        for name in others.split_whitespace() {
            assert!(!is_secret(name), "{name}");
        }
    }
}
