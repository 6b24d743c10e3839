//! Patterns of module names (`target_modules` as a regular expression): the names of linear layers that one ends in.

/// More names than these are no pattern that a person wrote.
const MOST_NAMES: usize = 256;

/// A longer one is none either; it also bounds how deep groups lie in each other.
const LONGEST: usize = 512;

/// Stands for an escaped dot while wildcards are looked for; no name has one.
const SEPARATOR: &str = "/";

/// What a pattern means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The last parts of the names, each once.
    pub names: Vec<String>,
    /// Whether each layer of the language model has them: else some may have no adapter.
    pub is_everywhere: bool,
}

/// Reads a pattern of names, dots, groups of alternatives and numbers of layers; `None` for any other.
pub(super) fn read_pattern(text: &str) -> Option<Pattern> {
    let plain = with_wildcards(text).filter(|plain| plain.len() <= LONGEST)?;
    let mut names: Vec<String> = Vec::new();
    let mut is_everywhere = true;
    for path in spelled_out(&plain)? {
        let mut parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
        let last = parts.pop()?;
        let is_name = !last.is_empty() && last.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || last.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        // Towers are not simulated, which their own caveat says.
        if parts.iter().any(|part| matches!(*part, "visual" | "vision_tower" | "vision_model" | "projector")) {
            continue;
        }
        is_everywhere &= !parts.iter().any(|part| part.chars().all(|c| c.is_ascii_digit()));
        if !names.iter().any(|name| name == last) {
            names.push(last.to_owned());
        }
    }
    (!names.is_empty()).then_some(Pattern { names, is_everywhere })
}

/// `*` for what stands for any number or any names, plain dots between names.
fn with_wildcards(text: &str) -> Option<String> {
    let mut plain =
        text.trim().trim_start_matches('^').trim_end_matches('$').replace("\\\\", "\\").replace("\\.", SEPARATOR);
    for any in ["[\\d]+", "\\d+", "[0-9]+", "[^.]+", ".+", ".*"] {
        plain = plain.replace(any, "*");
    }
    let plain = plain.replace(SEPARATOR, ".").replace("(?:", "(");
    let is_known = |c: char| c.is_ascii_alphanumeric() || "_.*()|?[]".contains(c);
    plain.chars().all(is_known).then_some(plain)
}

/// Every text that the pattern's groups come to.
fn spelled_out(pattern: &str) -> Option<Vec<String>> {
    let (texts, rest) = alternatives(pattern)?;
    rest.is_empty().then_some(texts)
}

/// The alternatives up to the end of the group, and what stands behind.
fn alternatives(mut text: &str) -> Option<(Vec<String>, &str)> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let (texts, rest) = sequence(text)?;
        all.extend(texts);
        match rest.strip_prefix('|') {
            Some(more) if all.len() <= MOST_NAMES => text = more,
            Some(_) => return None,
            None => return Some((all, rest)),
        }
    }
}

/// The texts of pieces behind each other, up to `|`, `)` or the end.
fn sequence(mut text: &str) -> Option<(Vec<String>, &str)> {
    let mut all = vec![String::new()];
    while let Some(first) = text.chars().next().filter(|first| !"|)".contains(*first)) {
        let (pieces, rest) = match first {
            '(' => {
                let (inner, rest) = alternatives(text.get(1..)?)?;
                optional(inner, rest.strip_prefix(')')?)
            }
            '[' => {
                let (inside, rest) = text.get(1..)?.split_once(']')?;
                optional(inside.chars().map(String::from).collect(), rest)
            }
            '?' | ']' => return None,
            _ => optional(vec![first.to_string()], text.get(first.len_utf8()..)?),
        };
        all = all.iter().flat_map(|begin| pieces.iter().map(move |piece| format!("{begin}{piece}"))).collect();
        if all.len() > MOST_NAMES {
            return None;
        }
        text = rest;
    }
    Some((all, text))
}

/// Pieces that a `?` behind them makes optional.
fn optional(mut pieces: Vec<String>, rest: &str) -> (Vec<String>, &str) {
    match rest.strip_prefix('?') {
        Some(rest) => {
            pieces.push(String::new());
            (pieces, rest)
        }
        None => (pieces, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Option<(String, bool)> {
        read_pattern(text).map(|found| (found.names.join(" "), found.is_everywhere))
    }

    #[test]
    fn patterns_of_trainers_are_read_as_the_names_they_end_in() {
        let all = Some(("up_proj down_proj q_proj".to_owned(), true));
        assert_eq!(names(r"model.language_model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj"), all);
        assert_eq!(names(r"model.layers.[\d]+.(_checkpoint_wrapped_module.)?(mlp|self_attn).(up|down|q)_proj"), all);
        assert_eq!(names(r"^model\.layers\.\d+\.mlp\.(?:up|down|q)_proj$"), all);
        assert_eq!(names(r".*\\.mlp\\.fc[12]"), Some(("fc1 fc2".to_owned(), true)));
        let some = r".*\\.layers\\.(3|7)\\.self_attn\\.(q|k)_proj|.*\\.mlp\\.up_proj";
        assert_eq!(names(some), Some(("q_proj k_proj up_proj".to_owned(), false)));
        let towers = r"(model\.layers\.\d+\.q_proj|model\.visual\.layers\.\d+\.fc[12])";
        assert_eq!(names(towers), Some(("q_proj".to_owned(), true)));
    }

    #[test]
    fn other_patterns_are_not_read() {
        let deep = "(".repeat(1 << 20);
        let many = "(a|b)".repeat(12);
        let others = [
            "",
            ".*",
            "a?",
            "?",
            "[",
            "]",
            "q_proj{2}",
            "(q_proj",
            "q_proj)",
            "(?!lm_head).*",
            r"layers\.\d+",
            &deep,
            &many,
        ];
        for text in others {
            assert_eq!(names(text), None, "{}", text.get(..40).unwrap_or(text));
        }
    }
}
