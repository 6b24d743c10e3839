//! Passwords, and tokens in place of a user, in addresses: `https://user:password@host`.

use std::ops::Range;

/// Users that are none: what stands there for everybody.
const EVERYBODY: [&str; 4] = ["git", "hg", "oauth2", "x-access-token"];
/// A user alone that is as long is taken for a token, whatever the scheme.
const TOKEN_LENGTH: usize = 16;

/// Where passwords stand in the addresses of `text`.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("//").map(|at| from + at) {
        let start = at + 2;
        let end = text[start..]
            .find(|c: char| c.is_whitespace() || "\"'<>`".contains(c))
            .map_or(text.len(), |end| start + end);
        // The next address of a list.
        let end = text[start..end].find("://").map_or(end, |next| start + scheme_start(&text[start..start + next]));
        found.extend(in_address(text, scheme(&text[..at]), start..end));
        from = start;
    }
    found.extend(without_scheme(text));
    found.extend(oracle(text));
    found
}

/// `https` of `see https:`
fn scheme(before: &str) -> &str {
    let before = before.strip_suffix(':').unwrap_or_default();
    &before[scheme_start(before)..]
}

fn scheme_start(before: &str) -> usize {
    before.len() - before.bytes().rev().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count()
}

fn in_address(text: &str, scheme: &str, range: Range<usize>) -> Option<Range<usize>> {
    let rest = &text[range.clone()];
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let user = match authority.rfind('@') {
        Some(at) => &authority[..at],
        // What looks like a port and is none is the beginning of a password with a slash.
        None => {
            let (_, port) = authority.split_once(':')?;
            let is_port =
                port.bytes().all(|byte| byte.is_ascii_digit()) || port.starts_with('{') && port.ends_with('}');
            if is_port || authority.starts_with('[') {
                return None;
            }
            &rest[..rest.rfind('@')?]
        }
    };
    let (name, password) = match user.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (user, None),
    };
    let of = |part: &str, offset: usize| (range.start + offset)..(range.start + offset + part.len());
    match password {
        // `https://TOKEN:x-oauth-basic@h`, `https://TOKEN:@h`
        Some(second) if second.is_empty() || second == "x-oauth-basic" => Some(of(name, 0)),
        Some(password) => Some(of(password, name.len() + 1)),
        None => is_token(scheme, name).then(|| of(name, 0)),
    }
    .filter(|range| !range.is_empty())
}

/// Whether a user without a password is a token: over HTTP it nearly always is one.
fn is_token(scheme: &str, user: &str) -> bool {
    let scheme = scheme.to_ascii_lowercase();
    let is_http = matches!(scheme.rsplit('+').next(), Some("http" | "https"));
    !EVERYBODY.contains(&user)
        && (is_http || user.len() > TOKEN_LENGTH && user.bytes().any(|byte| byte.is_ascii_digit()))
}

/// `user:password@host`, as some programs take it; not `image:tag@sha256:…`.
fn without_scheme(text: &str) -> Option<Range<usize>> {
    let start = text.rfind(['=', ',', ' ']).map_or(0, |at| at + 1);
    let word = &text[start..];
    let (user, host) = word.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let is_name = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    let is_host = host.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'[');
    let plain = is_name(name) && !name.is_empty() && is_host && !host.starts_with("sha") && !password.is_empty();
    let from = start + name.len() + 1;
    (plain && !password.starts_with("//") && !password.starts_with(['"', '\''])).then_some(from..from + password.len())
}

/// `jdbc:oracle:thin:user/password@host`
fn oracle(text: &str) -> Option<Range<usize>> {
    let at = text.find("jdbc:oracle:")?;
    let rest = &text[at..];
    let start = at + rest.find('/')? + 1;
    let end = start + text[start..].find('@')?;
    (start < end && !text[start..end].starts_with('/')).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn passwords_are_found() {
        for text in [
            "https://u:SECRET@h/x",
            "https://u:SECRET@h/x?token=1",
            "https://u:ab/SECRET@h/x",
            "https://u:a?SECRET@h",
            "https://SECRET@github.com/x.git",
            "https://SECRET:x-oauth-basic@github.com/x",
            "https://:SECRET@h",
            "postgres+psycopg://u:SECRET@h:5432/db?x=y",
            "git+https://SECRET@h/x.git@v1#egg=x",
            "redis://:SECRET@a,redis://:p@b",
            "redis://:p@a,redis://:SECRET@b",
            "//u:SECRET@h",
            "u:SECRET@h:22/x",
            "--db=u:SECRET@h",
            "jdbc:oracle:thin:u/SECRET@h:1521:x",
            "mongodb://u:SECRET@a:1,b:2/db",
            "ftp://ab1SECRETab1SECRETab1@h",
        ] {
            let found = find(text).into_iter().any(|range| text[range].contains("SECRET"));
            assert!(found, "{text}: {:?}", find(text));
        }
    }

    #[test]
    fn addresses_without_secrets_stay() {
        for text in [
            "https://h/x@y",
            "ssh://git@h/x",
            "git@github.com:x/y.git",
            "http://127.0.0.1:80/a@b",
            "s3://bucket/a:b@c",
            "https://h:443/x",
            "user@host:path",
            "img:tag@sha256:abc",
            "//server/share",
            "hdfs://me@h/x",
            "http://[::1]:80/a@b",
            "http://h:{port}/a@b",
            "12:30",
            "https://git@h/x",
        ] {
            assert!(find(text).is_empty(), "{text}");
        }
    }
}
