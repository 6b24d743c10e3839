//! Secrets known by their look: tokens of services, keys of clouds, JSON web tokens, private keys.

use std::ops::Range;

/// A token: what it begins with, what follows, and how many characters of that at least.
struct Format {
    begins: &'static str,
    follows: Follows,
    least: usize,
}

/// Characters of a token behind its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Alphanumeric,
    /// Also `-`, `_`, `.`, `=`, `/` and `+`.
    Any,
}

impl Follows {
    fn takes(self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || (self == Self::Any && b"-_.=/+".contains(&byte))
    }
}

const fn format(begins: &'static str, follows: Follows, least: usize) -> Format {
    Format { begins, follows, least }
}

/// As services document them, or secret scanners look for them.
const FORMATS: &[Format] = &[
    // Hugging Face.
    format("hf_", Follows::Alphanumeric, 14),
    format("api_org_", Follows::Alphanumeric, 20),
    // OpenAI, Anthropic and others that took the habit over.
    format("sk-", Follows::Any, 14),
    format("sk_live_", Follows::Alphanumeric, 10),
    format("sk_test_", Follows::Alphanumeric, 10),
    format("rk_live_", Follows::Alphanumeric, 10),
    // GitHub, GitLab.
    format("ghp_", Follows::Alphanumeric, 14),
    format("gho_", Follows::Alphanumeric, 14),
    format("ghu_", Follows::Alphanumeric, 14),
    format("ghs_", Follows::Alphanumeric, 14),
    format("ghr_", Follows::Alphanumeric, 14),
    format("github_pat_", Follows::Any, 10),
    format("glpat-", Follows::Any, 12),
    format("gldt-", Follows::Any, 12),
    format("glrt-", Follows::Any, 12),
    // Slack.
    format("xoxa-", Follows::Any, 10),
    format("xoxb-", Follows::Any, 10),
    format("xoxp-", Follows::Any, 10),
    format("xoxr-", Follows::Any, 10),
    format("xoxs-", Follows::Any, 10),
    format("xoxe-", Follows::Any, 10),
    format("xoxe.", Follows::Any, 10),
    format("xoxc-", Follows::Any, 10),
    format("xoxd-", Follows::Any, 10),
    format("xapp-", Follows::Any, 10),
    // Clouds: Amazon's key ids, Google's keys and tokens, DigitalOcean.
    format("AKIA", Follows::Alphanumeric, 16),
    format("ASIA", Follows::Alphanumeric, 16),
    format("AIza", Follows::Any, 30),
    format("ya29.", Follows::Any, 20),
    format("GOCSPX-", Follows::Any, 20),
    format("dop_v1_", Follows::Alphanumeric, 32),
    format("doo_v1_", Follows::Alphanumeric, 32),
    format("dor_v1_", Follows::Alphanumeric, 32),
    // Registries of packages and images.
    format("npm_", Follows::Alphanumeric, 30),
    format("pypi-", Follows::Any, 40),
    format("dckr_pat_", Follows::Any, 20),
    format("rubygems_", Follows::Alphanumeric, 30),
    // Places that train and serve models.
    format("wandb_v1_", Follows::Any, 20),
    format("nvapi-", Follows::Any, 20),
    format("gsk_", Follows::Alphanumeric, 30),
    format("r8_", Follows::Alphanumeric, 30),
    format("xai-", Follows::Alphanumeric, 30),
    format("pplx-", Follows::Alphanumeric, 30),
    format("KGAT_", Follows::Alphanumeric, 20),
    format("dapi", Follows::Alphanumeric, 32),
    // Neptune: base64 of `{"api_`.
    format("eyJhcGlf", Follows::Any, 20),
    // Others: Vault, SendGrid, Atlassian, Shopify, age.
    format("hvs.", Follows::Any, 20),
    format("SG.", Follows::Any, 40),
    format("ATATT3x", Follows::Any, 20),
    format("shpat_", Follows::Alphanumeric, 20),
    format("AGE-SECRET-KEY-1", Follows::Alphanumeric, 20),
];
/// Addresses whose path is the secret, up to where it begins.
const HOOKS: [&str; 4] =
    ["hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "api.telegram.org/bot"];
/// A key of Weights & Biases, as long as a commit of git.
const HEX_LENGTH: usize = 40;
/// Words before a commit of git: 40 digits there are none of a secret.
const COMMITS: [&str; 14] = [
    "rev", "commit", "sha", "hash", "ref", "checkout", "git", "version", "snapshot", "digest", "branch", "tag",
    "fetch", "reset",
];
/// A secret key of Amazon: 40 characters of base64.
const AMAZON_LENGTH: usize = 40;

/// Where secrets stand in `text`, after the word `before` it.
pub(super) fn find(text: &str, before: &str) -> Vec<Range<usize>> {
    let mut found = private_keys(text);
    found.extend(hooks(text));
    for run in runs(text, |byte| byte.is_ascii_alphanumeric() || b"-_.=/+".contains(&byte)) {
        found.extend(tokens(text, run.clone()));
        found.extend(web_token(text, run.clone()));
        found.extend(hex(text, run.clone(), before));
        found.extend(amazon(text, run));
    }
    found
}

/// Maximal runs of bytes that `belongs`.
fn runs(text: &str, belongs: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut runs, mut start) = (Vec::new(), None);
    for at in 0..=bytes.len() {
        match (start, bytes.get(at).is_some_and(|byte| belongs(*byte))) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                runs.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    runs
}

/// Tokens of services: they begin where a word does.
fn tokens(text: &str, run: Range<usize>) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = run.start;
    while at < run.end {
        let begins_here = at == run.start || !bytes[at - 1].is_ascii_alphanumeric();
        let length = if begins_here { token_length(&text[at..run.end]) } else { None };
        match length {
            Some(length) => {
                found.push(at..at + length);
                at += length;
            }
            None => at += 1,
        }
    }
    found
}

fn token_length(text: &str) -> Option<usize> {
    FORMATS.iter().find_map(|format| {
        let rest = text.strip_prefix(format.begins)?;
        let length = rest.bytes().take_while(|byte| format.follows.takes(*byte)).count();
        let tail = rest.get(..length)?;
        (length >= format.least && is_random(tail)).then_some(format.begins.len() + length)
    })
}

/// Words apart by `-` and `_` are names: what is random has digits, or no such end for long.
fn is_random(tail: &str) -> bool {
    tail.bytes().any(|byte| byte.is_ascii_digit())
        || tail.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part.len() >= 14)
}

/// `eyJ….….…`
fn web_token(text: &str, run: Range<usize>) -> Option<Range<usize>> {
    let start = run.start + text[run.clone()].find("eyJ")?;
    let parts: Vec<&str> = text[start..run.end].split('.').collect();
    (parts.len() >= 3 && parts[0].len() > 8 && parts[1].len() > 4).then_some(start..run.end)
}

fn hex(text: &str, run: Range<usize>, before: &str) -> Option<Range<usize>> {
    let value_at = text[run.clone()].rfind('=').map_or(run.start, |at| run.start + at + 1);
    let value = &text[value_at..run.end];
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let has_both =
        value.bytes().any(|byte| byte.is_ascii_digit()) && value.bytes().any(|byte| byte.is_ascii_lowercase());
    if value.len() != HEX_LENGTH || !value.bytes().all(is_hex) || !has_both {
        return None;
    }
    let said = [before, &text[..value_at]].concat().to_ascii_lowercase();
    let is_commit = said.ends_with(['@', '#']) || COMMITS.iter().any(|commit| said.contains(commit));
    (!is_commit).then_some(value_at..run.end)
}

/// A key that is neither a path nor a word: small and capital letters and digits, changing often.
fn amazon(text: &str, run: Range<usize>) -> Option<Range<usize>> {
    let value_at = text[run.clone()].find('=').map_or(run.start, |at| run.start + at + 1);
    let value = &text[value_at..run.end];
    if value.len() != AMAZON_LENGTH || value.contains(['-', '_', '.', '=']) || value.starts_with('/') {
        return None;
    }
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase(), byte.is_ascii_lowercase());
    let changes = value.as_bytes().windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count();
    let has = |is: fn(&u8) -> bool| value.as_bytes().iter().any(is);
    let mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    (mixed && changes >= AMAZON_LENGTH / 4).then_some(value_at..run.end)
}

fn private_keys(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("-----BEGIN ").map(|at| from + at) {
        let is_private = text[at..].lines().next().is_some_and(|line| line.contains("PRIVATE KEY"));
        let end = text[at..].find("-----END ").map(|end| at + end);
        let end = end.map_or(text.len(), |end| {
            let label = end + "-----END ".len();
            text[label..].find("-----").map_or(text.len(), |dashes| label + dashes + "-----".len())
        });
        if is_private {
            found.push(at..end);
        }
        from = end;
    }
    found
}

fn hooks(text: &str) -> Vec<Range<usize>> {
    let ends = |c: char| c.is_whitespace() || "\"'?#<>;,".contains(c);
    let hook = |hook: &&str| {
        let start = text.find(*hook)? + hook.len();
        let length = text[start..].find(ends).unwrap_or(text.len() - start);
        (length > 0).then_some(start..start + length)
    };
    HOOKS.iter().filter_map(hook).collect()
}

#[cfg(test)]
mod tests {
    use super::find;

    /// A token's beginning with a random end, so that no scanner takes this file for a leak.
    fn token(begins: &str, length: usize) -> String {
        let end: String = "a9Zk3Qw7Lx2Bv8Nc5Mt1Rp6Yd4Hs0Gj".chars().cycle().take(length).collect();
        format!("{begins}{end}")
    }

    #[test]
    fn tokens_are_known_by_their_look() {
        for format in super::FORMATS {
            let token = token(format.begins, format.least);
            for text in
                [token.clone(), format!("x={token}"), format!("see '{token}', ok"), format!("https://h/{token}/x")]
            {
                let found = find(&text, "").into_iter().any(|range| text[range].contains(&token));
                assert!(found, "{text}");
            }
        }
    }

    #[test]
    fn keys_of_clouds_and_commits_are_told_apart() {
        let hex = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(find(hex, "login"), std::iter::once(0..40).collect::<Vec<_>>());
        for (text, before) in [
            (hex.to_owned(), "--revision"),
            (format!("--commit={hex}"), ""),
            (format!("git+https://h/x.git@{hex}"), ""),
            (format!("/models/snapshots/{hex}"), ""),
        ] {
            assert!(find(&text, before).is_empty(), "{text}");
        }
        let amazon = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYz4w2Q8L1uV";
        assert_eq!(find(amazon, ""), std::iter::once(0..40).collect::<Vec<_>>());
        assert!(find("/home/User1/checkpoints/Llama-3-8B/run12", "").is_empty());
    }

    #[test]
    fn names_that_begin_alike_are_none() {
        let others = "sk-learn-contrib-tools hf_transfer sk-learn npm_config_cache_folder hf_hub_offline AKIA dapi \
                      eyJsb2NhbGhvc3QiOiBbMCwxXX0= api_org_x pypi-server xoxb-short ghp_x -----BEGIN";
        for text in others.split_whitespace() {
            assert!(find(text, "").is_empty(), "{text}");
        }
    }

    #[test]
    fn private_keys_are_hidden_whole() {
        let text = "--key=-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- x";
        assert_eq!(&text[find(text, "")[0].clone()], &text[6..text.len() - 2]);
        assert!(find("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "").is_empty());
        let hook = "https://hooks.slack.com/services/T0/B0/abc";
        assert_eq!(&hook[find(hook, "")[0].clone()], "T0/B0/abc");
    }
}
