//! Secrets in command lines, addresses and environments: what names one, what looks like one, and texts with them hidden.
//! Whoever writes or shows the words of a process sends them through here first.

mod names;

pub use names::is_secret;

/// What stands in a secret's place.
pub const HIDDEN: &str = "(hidden)";
/// What tokens of services begin with: Hugging Face, OpenAI and Anthropic, GitHub, GitLab, Slack.
const PREFIXES: [&str; 6] = ["hf_", "sk-", "ghp_", "github_pat_", "glpat-", "xoxb-"];
/// A service's token is longer than this.
const TOKEN_LENGTH: usize = 16;
/// What ends a piece of an argument: a script, a query, JSON.
const ENDS: [char; 9] = [';', '&', '?', ',', '{', '}', '"', '\'', '|'];

/// Whether the value is a service's token by its beginning.
pub fn is_service_token(value: &str) -> bool {
    value.len() > TOKEN_LENGTH && PREFIXES.iter().any(|prefix| value.starts_with(prefix))
}

/// The words of a command line, one by one, without their secrets.
pub fn hide_in_words<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut shown = Vec::new();
    let mut is_next = false;
    for word in words {
        let is_value = std::mem::take(&mut is_next) && !word.starts_with('-');
        shown.push(if is_value { HIDDEN.to_owned() } else { hide_in_word(word, &mut is_next) });
    }
    shown
}

/// A text whose words are apart by blanks, without its secrets.
pub fn hide_in_text(text: &str) -> String {
    hide_in_words(text.split(' ')).join(" ")
}

/// The value of a variable as it may be shown.
pub fn hide_in_variable(name: &str, value: &str) -> String {
    if is_secret(name) { HIDDEN.to_owned() } else { hide_in_text(value) }
}

fn hide_in_word(word: &str, is_next: &mut bool) -> String {
    // `--password=a,b` is one value to its end, where it is one word.
    if let Some((name, value)) = word.split_once('=')
        && !value.contains(char::is_whitespace)
        && is_name(name)
        && is_secret(name)
    {
        return format!("{name}={HIDDEN}");
    }
    let (mut shown, mut at) = (String::with_capacity(word.len()), 0);
    for piece in word.split_inclusive(|c: char| c.is_whitespace() || ENDS.contains(&c)) {
        let body = piece.trim_end_matches(|c: char| c.is_whitespace() || ENDS.contains(&c));
        let end = piece.get(body.len()..).unwrap_or_default();
        at += piece.len();
        if !body.is_empty() {
            shown.push_str(&hide_in_piece(body, is_next));
        }
        // A key of JSON: its quotes were taken for ends.
        let is_key =
            end.starts_with(['"', '\'']) && word.get(at..).is_some_and(|rest| rest.trim_start().starts_with(':'));
        *is_next |= is_key && is_name(body) && is_secret(body);
        shown.push_str(end);
    }
    shown
}

/// A piece without blanks; what it says of the next one is kept in `is_next`.
fn hide_in_piece(piece: &str, is_next: &mut bool) -> String {
    let is_value = std::mem::take(is_next);
    if piece == ":" || piece == "=" {
        *is_next = is_value;
        return piece.to_owned();
    }
    if is_value && matches!(piece.to_ascii_lowercase().as_str(), "bearer" | "basic") {
        *is_next = true;
        return piece.to_owned();
    }
    if (is_value && !piece.starts_with('-')) || is_service_token(piece) {
        let (lead, _) = piece.split_at_checked(usize::from(piece.starts_with([':', '=']))).unwrap_or_default();
        return format!("{lead}{HIDDEN}");
    }
    if piece.starts_with("--") && is_name(piece) {
        *is_next = is_secret(piece);
        return piece.to_owned();
    }
    match piece.split_once(['=', ':']).filter(|(name, value)| is_name(name) && !value.starts_with("//")) {
        Some((name, "")) => {
            *is_next = is_secret(name);
            piece.to_owned()
        }
        Some((name, _)) if is_secret(name) => format!("{}{HIDDEN}", piece.get(..=name.len()).unwrap_or_default()),
        Some((name, value)) => {
            let head = piece.get(..=name.len()).unwrap_or_default();
            let value = if is_service_token(value) { HIDDEN.to_owned() } else { hide_in_address(value) };
            format!("{head}{value}")
        }
        None => hide_in_address(piece),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.+".contains(c))
}

/// `scheme://user:password@host` without who asks; a short name alone (`ssh://git@host`) is none.
fn hide_in_address(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split(['/', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') || user.len() > TOKEN_LENGTH => {
            format!("{scheme}://{HIDDEN}{}", rest.get(user.len()..).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_shown_without_secrets() {
        let cases = [
            ("t|--api-key|abc def|--lr|1", "t|--api-key|(hidden)|--lr|1"),
            ("t|--password=a,b;c|x", "t|--password=(hidden)|x"),
            ("env|MYSQL_PWD=x|t", "env|MYSQL_PWD=(hidden)|t"),
            ("sh|-c|HF_TOKEN='a b' t; u", "sh|-c|HF_TOKEN='(hidden) b' t; u"),
            (
                "sh|-c|export GITHUB_PAT=x && t --token y -v",
                "sh|-c|export GITHUB_PAT=(hidden) && t --token (hidden) -v",
            ),
            ("t|--db|postgres://u:pw@h:1/x", "t|--db|postgres://(hidden)@h:1/x"),
            ("t|--db=postgres://u:pw@h/x?password=y&a=b", "t|--db=postgres://(hidden)@h/x?password=(hidden)&a=b"),
            ("t|hf_abcdefghijklmnopqrst|--x=hf_abcdefghijklmnopqrst", "t|(hidden)|--x=(hidden)"),
            ("curl|-H|Authorization: Bearer abc", "curl|-H|Authorization: Bearer (hidden)"),
            ("t|{\"api_key\": \"abc\", \"lr\": 1}", "t|{\"api_key\": \"(hidden)\", \"lr\": 1}"),
            ("t|--dsn|host=h password=pw user=u", "t|--dsn|(hidden)"),
            ("t|host=h password=pw user=u", "t|host=h password=(hidden) user=u"),
            ("sh|-c|cd x; pwd; ls the key is y", ""),
            ("git|clone|ssh://git@h/x|http://127.0.0.1:80/a@b", ""),
            ("t|--pad_token|<|--max_tokens|10|--token|--next|x|C:\\a", ""),
            ("torchrun|--nproc-per-node=8|train.py|--lr=1e-4|--layers=[1,2]", ""),
        ];
        for (typed, shown) in cases {
            let found = hide_in_words(typed.split('|')).join("|");
            assert_eq!(found, if shown.is_empty() { typed } else { shown }, "{typed}");
        }
    }

    #[test]
    fn variables_are_shown_without_secrets() {
        let cases = [
            ("DB_URL", "postgres://u:pw@h/x", "postgres://(hidden)@h/x"),
            ("PIP_INDEX_URL", "https://u:pw@h/simple", "https://(hidden)@h/simple"),
            ("MY_PASSPHRASE", "x", HIDDEN),
            ("PWD", "/home/a", "/home/a"),
            ("LS_COLORS", "rs=0:di=01;34", "rs=0:di=01;34"),
        ];
        cases.iter().for_each(|(name, value, shown)| assert_eq!(hide_in_variable(name, value), *shown, "{name}"));
    }
}
