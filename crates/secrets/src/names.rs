//! Which names of flags, variables, headers and keys say that their value is a secret.

/// Parts of a name, separators left out, that say so wherever they stand.
const PARTS: [&str; 13] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "credential",
    "apikey",
    "accesskey",
    "accesscode",
    "privatekey",
    "accountkey",
    "signingkey",
    "encryptionkey",
];
/// Words of a name that say so as whole words.
const WORDS: [&str; 15] = [
    "pwd",
    "dsn",
    "pat",
    "pw",
    "authorization",
    "cred",
    "creds",
    "jwt",
    "bearer",
    "cookie",
    "cookies",
    "otp",
    "totp",
    "psk",
    "mnemonic",
];
/// Names of the working folder, and of passwords too: what their value is says which ([`is_path`]).
const FOLDERS: [&str; 2] = ["pwd", "oldpwd"];
/// Last words of names whose values lead to a secret, or tell its shape, and are none: `--key-file`, `--token-url`.
const ABOUT: [&str; 19] = [
    "file", "path", "dir", "folder", "env", "url", "uri", "endpoint", "name", "length", "len", "size", "type",
    "format", "policy", "timeout", "ttl", "count", "limit",
];
/// Keys of rows, tables, files and random numbers, which are none: `--text-key`, `--primary_key`.
const DATA: [&str; 51] = [
    "text",
    "label",
    "labels",
    "prompt",
    "input",
    "inputs",
    "output",
    "outputs",
    "image",
    "audio",
    "video",
    "response",
    "target",
    "query",
    "sort",
    "primary",
    "foreign",
    "group",
    "column",
    "state",
    "cache",
    "dict",
    "feature",
    "field",
    "sample",
    "reward",
    "metric",
    "answer",
    "question",
    "message",
    "messages",
    "chosen",
    "rejected",
    "instruction",
    "content",
    "completion",
    "index",
    "json",
    "dataset",
    "batch",
    "loss",
    "partition",
    "row",
    "unique",
    "shard",
    "rng",
    "prng",
    "random",
    "score",
    "data",
    "conversation",
];
/// Tokens of a vocabulary or of a count, which are none: `--pad_token`.
const VOCABULARY: [&str; 29] = [
    "pad",
    "eos",
    "bos",
    "unk",
    "mask",
    "sep",
    "cls",
    "image",
    "video",
    "audio",
    "stop",
    "start",
    "end",
    "special",
    "next",
    "new",
    "per",
    "first",
    "last",
    "extra",
    "vision",
    "think",
    "boundary",
    "newline",
    "separator",
    "prefix",
    "suffix",
    "delimiter",
    "begin",
];
/// What passes in training before "pass" is a password: `--forward-pass`.
const PASSES: [&str; 15] = [
    "forward", "backward", "single", "one", "two", "multi", "first", "second", "low", "high", "band", "by", "com",
    "tres", "per",
];
/// Whose keys and tokens, in the plural, are secrets: `--tokens` alone counts tokens.
const OWNERS: [&str; 12] =
    ["access", "auth", "api", "refresh", "bearer", "hub", "hf", "github", "ssh", "signing", "service", "session"];
/// What stands before "key" in one word.
const GLUED_KEYS: [&str; 16] = [
    "auth",
    "shared",
    "master",
    "ssh",
    "license",
    "storage",
    "subscription",
    "wandb",
    "openai",
    "deploy",
    "server",
    "client",
    "admin",
    "hf",
    "user",
    "function",
];

/// Whether the value of `name`, a flag or a variable, is a secret.
pub fn is_secret(name: &str) -> bool {
    // `-Dtoken`, `-eHF_TOKEN`: one letter and the name of what it sets.
    let defined = name.strip_prefix("-D").or_else(|| name.strip_prefix("-e"));
    defined.is_some_and(names_secret) || names_secret(name)
}

/// Whether the value of `name` is a secret, or is one unless it is a folder: [`may_be_folder`].
pub(super) fn may_be_secret(name: &str) -> bool {
    is_secret(name) || may_be_folder(name)
}

/// Whether `name` is the working folder's and passwords': `PWD`, `--pwd`.
pub(super) fn may_be_folder(name: &str) -> bool {
    let is_named = |name: &str| FOLDERS.contains(&name_words(name).concat().as_str());
    let defined = name.strip_prefix("-D").or_else(|| name.strip_prefix("-e"));
    defined.is_some_and(is_named) || is_named(name)
}

/// Whether `value` is written as the path of a folder: from the root, the home or where one is; no other signs than paths have.
pub(super) fn is_path(value: &str) -> bool {
    let value = value.trim_matches(['"', '\'']);
    let begins = ["/", "~", "./", "../", "\\\\"].iter().any(|start| value.starts_with(start));
    let drive = value.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && (value[1..].starts_with(":\\") || value[1..].starts_with(":/"));
    let is_sign = |c: char| c.is_alphanumeric() || "/\\_-.~: ".contains(c);
    matches!(value, "." | "..") || (begins || drive) && value.chars().all(is_sign)
}

fn names_secret(name: &str) -> bool {
    let words = name_words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let compact = words.concat();
    if FOLDERS.contains(&compact.as_str()) || words.last().is_some_and(|last| ABOUT.contains(last)) {
        return false;
    }
    PARTS.iter().any(|part| compact.contains(part))
        || words.iter().any(|word| WORDS.contains(word))
        || ends_as_secret(&words)
}

/// Whether the name is that of a number of a vocabulary, if its value is a number: `--token-id 5`.
pub(super) fn may_be_number(name: &str) -> bool {
    matches!(name_words(name).as_slice(), [.., token, id] if token.ends_with("token") && matches!(id.as_str(), "id" | "ids"))
}

/// The words of a name, in lowercase: `--dbPassword`, `X-Api-Key`, `AWSSecretKey`.
fn name_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let chars: Vec<char> = name.chars().collect();
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let begins = match before {
            Some(before) if before.is_ascii_alphanumeric() => {
                let next_is_small = chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
                c.is_ascii_uppercase()
                    && (before.is_ascii_lowercase() || (before.is_ascii_uppercase() && next_is_small))
            }
            _ => true,
        };
        match words.last_mut().filter(|_| !begins) {
            _ if !c.is_ascii_alphanumeric() => {}
            Some(word) => word.push(c.to_ascii_lowercase()),
            None => words.push(c.to_ascii_lowercase().to_string()),
        }
    }
    words
}

/// `HF_TOKEN`, `--hubtoken`, `TOKEN_2`, `--wandb-key`; not `--max-tokens`, `--tokenizer`, `--token-dim`, `--num-key-value-heads`.
fn ends_as_secret(words: &[&str]) -> bool {
    let counts = |word: &&str| word.chars().all(|c| c.is_ascii_digit()) || matches!(*word, "value" | "id");
    let mut stem = words.iter().copied().rev().skip_while(counts);
    let Some(last) = stem.next() else { return false };
    let before = stem.next().unwrap_or_default();
    if let Some(of) = last.strip_suffix("token") {
        return !VOCABULARY.contains(if of.is_empty() { &before } else { &of });
    }
    if let Some(of) = last.strip_suffix("pass") {
        return !PASSES.contains(if of.is_empty() { &before } else { &of });
    }
    if let Some(of) = last.strip_suffix("key") {
        return if of.is_empty() { !DATA.contains(&before) } else { GLUED_KEYS.contains(&of) };
    }
    match last {
        "tokens" | "keys" => OWNERS.contains(&before),
        "auth" | "sig" | "signature" => true,
        _ => ["pwd", "jwt", "creds", "cookie"].iter().any(|end| last.ends_with(end)),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_path, is_secret, may_be_folder};

    #[test]
    fn a_folder_is_told_from_a_password() {
        for name in ["PWD", "OLDPWD", "--pwd", "Pwd"] {
            assert!(may_be_folder(name) && !is_secret(name), "{name}");
        }
        assert!(!may_be_folder("MYSQL_PWD") && is_secret("MYSQL_PWD"));
        for value in
            ["/", "/home/a b", "~/x", "./run", "..", ".", "C:\\Users\\a", "c:/x", "\\\\host\\x", "'/a'", "/home/\u{e9}"]
        {
            assert!(is_path(value), "{value}");
        }
        for value in ["", "abc", "a/b", "/x9+k=", "/p@ss", "c:", "\u{e9}:/", "..a"] {
            assert!(!is_path(value), "{value}");
        }
    }

    #[test]
    fn names_say_what_they_name() {
        let secrets = "--password HF_TOKEN --wandb-key WANDB_API_KEY OPENAI_KEY --key db.password MYSQL_PWD SENTRY_DSN \
                       AWS_SECRET_ACCESS_KEY --ssh-passphrase GOOGLE_CREDENTIALS --hubtoken TOKEN_2 apikey https://h?token AWS_ACCESS_KEY_ID OPENAI_API_KEY_TEAM \
                       hf_token GITHUB_PAT MY_PASSPHRASE dbPassword --hub-token PGPASSWORD BASIC_AUTH Authorization \
                       SSHPASS DB_PASS --pass --cred --creds MY_CRED MY_JWT --bearer --cookie SESSION_COOKIE --otp --signature sig X-Amz-Signature \
                       --access-code AccountKey SharedAccessKey X-Api-Key AWSSecretKey api_keys access_tokens sshpass userpwd -Dtoken -eHF_TOKEN \
                       --use_auth_token ADMIN_PASS_2";
        for name in secrets.split_whitespace() {
            assert!(is_secret(name), "{name}");
        }
        let others = "--pad_token --max_tokens --tokenizer --token-dim PWD OLDPWD --monkey --text-key --primary_key --num_key_value_heads --key-file PASSWORD_FILE \
                      --keyboard x RANK PATH PYTHONPATH TOKENIZERS_PARALLELISM KEYBOARD_LAYOUT AUTHOR pattern --image-token SSH_AUTH_SOCK \
                      --pad-token-id --keyframes token_type_ids --tokens --forward-pass --bypass --num-passes --compass --pass-through \
                      --key-value-heads --cache-keys --loss-per-token --token-url --secret-name --max-new-tokens --pin-memory --monkeys \
                      --hotkeys --design --assignment --signature-columns --passes --credit --password-length";
        for name in others.split_whitespace() {
            assert!(!is_secret(name), "{name}");
        }
    }
}
