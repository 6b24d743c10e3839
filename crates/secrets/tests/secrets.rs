//! No secret is shown, however it was written; and what training is told stays readable.

mod grammar;

use proptest::prelude::*;
use tonnage_secrets::{find_in_words, hide_in_text, hide_in_variable, hide_in_words};

/// As much of a secret as may be seen.
const PART: usize = 4;

/// The longest part of `secret` that `text` has.
fn seen(text: &str, secret: &str) -> usize {
    let parts = |length: usize| (0..=secret.len() - length).map(move |at| &secret[at..at + length]);
    (1..=secret.len()).rev().find(|length| parts(*length).any(|part| text.contains(part))).unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_a_secret_is_shown(typed in grammar::typed()) {
        let words = || typed.words.iter().map(String::as_str);
        let shown = hide_in_words(words()).join(" ");
        prop_assert!(seen(&shown, &typed.secret) <= PART, "{:?} -> {}", typed.words, shown);
        for spot in find_in_words(&words().collect::<Vec<_>>()).into_iter().flatten() {
            prop_assert!(seen(&spot.name, &typed.secret) <= PART, "{:?}: {}", typed.words, spot.name);
        }
        // As `ps` and drivers give it: one text.
        if typed.words.iter().all(|word| !word.contains(char::is_whitespace)) {
            let text = hide_in_text(&words().collect::<Vec<_>>().join(" "));
            prop_assert!(seen(&text, &typed.secret) <= PART, "{:?} -> {}", typed.words, text);
        }
        // As the value of a variable that is not named like a secret.
        let variable = hide_in_variable("EXTRA", typed.words.last().map_or("", String::as_str));
        if typed.words.len() == 1 {
            prop_assert!(seen(&variable, &typed.secret) <= PART, "{:?} -> {}", typed.words, variable);
        }
    }

    #[test]
    fn any_words_can_be_looked_through(words in proptest::collection::vec("[a-z=:\"'\\\\{}\\[\\]()%;&?#@/$<>|, \u{e9}\u{4e2d}N-]{0,24}|token|--password|-c|Bearer", 0..6)) {
        let shown = hide_in_words(words.iter().map(String::as_str));
        prop_assert_eq!(shown.len(), words.len());
        hide_in_text(&words.join(" "));
    }

    #[test]
    fn the_working_folder_stays(
        name in proptest::sample::select(vec!["pwd", "PWD", "OLDPWD"]),
        folder in "(/|~/|\\./|\\.\\./|C:\\\\)[a-z]{1,8}([/_.-][a-zA-Z0-9]{1,12}){0,3}",
        form in 0..5_usize,
    ) {
        prop_assert_eq!(hide_in_variable(name, &folder), folder.clone());
        let words = match form {
            0 => vec![format!("--{name}"), folder],
            1 => vec![format!("--{name}={folder}")],
            2 => vec!["env".to_owned(), format!("{name}={folder}"), "t".to_owned()],
            3 => vec![format!("{{\"{name}\": \"{folder}\", \"a\": 1}}")],
            _ => vec![format!("[\"--{name}\", \"{folder}\"]")],
        };
        prop_assert_eq!(hide_in_words(words.iter().map(String::as_str)), words);
    }

    #[test]
    fn what_training_is_told_stays(
        flag in proptest::sample::select(vec![
            "tokenizer", "max-tokens", "max_new_tokens", "key-value-heads", "num_key_value_heads", "pad-token-id", "pad_token",
            "eos_token_id", "keyframes", "token_type_ids", "lr", "seed", "model", "output_dir", "run-name", "text-key", "label_key",
            "num-passes", "passes", "signature-columns", "tokens-per-step", "vocab", "monkey", "compass", "data", "config", "image-token",
            "prompt_column", "pin-memory", "hub-model-id", "resume-from", "author", "design", "credit", "sort-key", "per-token-loss",
            "author-id", "patience", "pattern", "keep-last", "cache-key", "token-budget", "steps", "passthrough", "forward-pass",
        ]),
        value in "[a-z]{2,8}/[a-z0-9-]{3,12}|[0-9]{1,7}|/[a-z]{3,6}/[a-z0-9_]{3,20}\\.json|1e-[0-9]|[a-z]{3,12}|\\[1,2\\]",
        form in 0..5_usize,
    ) {
        let words = match form {
            0 => vec![format!("--{flag}"), value],
            1 => vec![format!("--{flag}={value}")],
            2 => vec![format!("{flag}={value}")],
            3 => vec![format!("{{\"{flag}\": \"{value}\", \"a\": 1}}")],
            _ => vec![format!("{flag}: {value}")],
        };
        let shown = hide_in_words(words.iter().map(String::as_str));
        prop_assert_eq!(shown, words);
    }
}
